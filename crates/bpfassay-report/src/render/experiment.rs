//! How the experiment went: how many boots sequential sampling came to, and whether the baseline drifted.

use super::words;
use crate::{
    Results,
    results::{Access, CellResult, Sampled, SamplingEnd},
};

/// Lines that must be read with the figures.
pub(super) fn warnings(results: &Results) -> Vec<String> {
    let mut lines: Vec<String> = results.sampling.iter().filter_map(|sampled| of_sampling(results, sampled)).collect();
    lines.extend(drifts(results));
    lines
}

/// `sampled x86_64 6.12: 5 of at most 20 boots: every interval is within 0.5%`.
fn of_sampling(results: &Results, sampled: &Sampled) -> Option<String> {
    let until = results.plan.until()?;
    let Sampled { target, case, file_system, boots, most, .. } = sampled;
    let widest = sampled.widest.as_ref().map_or_else(String::new, |widest| {
        format!("; the widest is {}, {}: {}", widest.cell, widest.access, words::beyond_one(1.0 + widest.within))
    });
    let why = match sampled.end {
        None => format!("goes on, the next look is at {boots} boots"),
        Some(SamplingEnd::NarrowEnough) => format!("stopped after {boots}: every interval is within {until}{widest}"),
        Some(SamplingEnd::MostBoots) => format!("all boots done, and not every interval is within {until}{widest}"),
        Some(SamplingEnd::NothingMeasured) => format!("stopped after {boots}: no overhead was measured"),
    };
    Some(format!("sampling {target}, {case} on {file_system}, of at most {most} boots: {why}"))
}

/// The baselines that changed with time, at the study's error rate over all of them (Bonferroni).
fn drifts(results: &Results) -> Vec<String> {
    let found: Vec<_> = results
        .cells
        .iter()
        .flat_map(|cell| cell.accesses.iter().map(move |access| (cell, access)))
        .filter_map(|(cell, access)| Some((cell, access.access, access.drift.value()?)))
        .collect();
    let alpha = results.plan.study.design.certainty.error_rate.value() / found.len().max(1) as f64;
    let line = |cell: &CellResult, access: Access, drift: &bpfassay_stats::drift::Drift| {
        let (way, by) = if drift.ratio_overall < 1.0 {
            ("falls", 1.0 / drift.ratio_overall)
        } else {
            ("rises", drift.ratio_overall)
        };
        format!(
            "drift: {}, {access}: the baseline's bandwidth {way} by {} from the first to the last of {} runs (Mann-Kendall, p = \
             {:.1e}): blocks are not repetitions of one state",
            cell.cell,
            words::beyond_one(by),
            drift.n,
            drift.p
        )
    };
    let drifted = found.iter().filter(|(_, _, drift)| drift.p < alpha);
    drifted.map(|(cell, access, drift)| line(cell, *access, drift)).collect()
}

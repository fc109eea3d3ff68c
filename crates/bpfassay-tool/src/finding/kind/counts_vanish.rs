// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cumulative figure loses a subject.

use std::collections::BTreeSet;

use crate::{
    file::Report,
    finding::{
        certainty::Certainty,
        course::{NEEDS_TWO, of, of_its_map, reports_all, series},
        definition::{Definition, KindInputs},
        finding_figures::{Differences, EvidenceTally},
        finding_source::{KindSources, Source},
        status::FindingStatus,
    },
    readings::{Readings, ReportedSample, Vanished},
};

pub(super) const FINDING: Definition = Definition {
    name: "counts-vanish",
    explanation: "A figure that counts cumulatively had a cgroup, mount or process in an earlier report, and in a later one no more, or keys of a map were gone, which are parts of one (a map that evicts). Not evaluated without two reports of such a figure, where it reports line by line, or where not all that was reported could be read.",
    sources: KindSources::Of(&[Source::Figures, Source::Reports]),
    clear: "each report has what the one before had",
    explain: Some(explain),
    evaluate,
};

/// A subject that was reported and then is missing from a report.
struct Gone<'r> {
    figure: usize,
    subject: &'r Option<String>,
    /// The last sample before the first report without the subject.
    last: &'r ReportedSample,
    lacking_ns: u64,
    /// Sum of the last counts before each disappearance.
    amount: u64,
}

fn gone<'r>(report: &Report, readings: &'r Readings) -> Vec<Gone<'r>> {
    let of_one = |((figure, subject), samples): ((usize, &'r Option<String>), Vec<&'r ReportedSample>)| {
        let first = samples.first()?;
        let reported: BTreeSet<u64> = samples.iter().map(|sample| sample.at_ns).collect();
        let lacking = readings.reports.iter().find(|&&report| report > first.at_ns && !reported.contains(&report))?;
        let last = samples.iter().rev().find(|sample| sample.at_ns < *lacking).unwrap_or(first);
        let mut amount = 0_u64;
        for (at, sample) in samples.iter().enumerate() {
            let until = samples.get(at + 1).map_or(u64::MAX, |next| next.at_ns);
            if readings.reports.iter().any(|&report| report > sample.at_ns && report < until) {
                amount = amount.saturating_add(sample.value);
            }
        }
        Some(Gone { figure, subject, last, lacking_ns: *lacking, amount })
    };
    if reports_all(report) { series(report, readings).into_iter().filter_map(of_one).collect() } else { Vec::new() }
}

/// Keys that vanished from maps while other keys of their subject remained.
fn within<'r>(gone: &[Gone<'_>], readings: &'r Readings) -> impl Iterator<Item = &'r Vanished> {
    let whole: Vec<_> = gone.iter().map(|one| (one.figure, one.subject.clone())).collect();
    readings.vanished.iter().filter(move |one| !whole.contains(&(one.figure, one.subject.clone())))
}

/// Explains what a subject lacks by the counts that vanished with it, or with its keys.
fn explain(_: &mut EvidenceTally, differences: &mut Differences<'_>) {
    let Differences { report, readings, index, comparisons, .. } = differences;
    let gone = gone(report, readings);
    let keys = within(&gone, readings).map(|one| (one.figure, &one.subject, one.amount));
    let all = gone.iter().map(|one| (one.figure, one.subject, one.amount)).chain(keys);
    for (_, subject, amount) in all.filter(|(figure, ..)| figure == index) {
        for one in comparisons.iter_mut() {
            if subject.as_ref().is_none_or(|name| one.subject.has_name(name)) {
                one.account(amount, "vanished");
            }
        }
    }
}

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let (report, readings) = match known.reported() {
        Ok(reported) => reported,
        Err(reason) => return FindingStatus::not_evaluated(reason),
    };
    if !reports_all(report) {
        return FindingStatus::not_evaluated(
            "it reports line by line, so that what is missing may just not have been reported",
        );
    }
    if let Some(reason) = readings.incomplete() {
        return FindingStatus::not_evaluated(reason);
    }
    let gone = gone(report, readings);
    if gone.is_empty() && (readings.reports.len() < 2 || series(report, readings).is_empty()) {
        return FindingStatus::not_evaluated(NEEDS_TWO);
    }
    let kernel = known.evidence.kernel;
    let keys = within(&gone, readings).map(|one| {
        let Vanished { figure, subject, keys, amount, last_ns, lacking_ns } = one;
        let why = of_its_map(report, *figure, kernel);
        let figure = of(report, *figure, subject.as_deref());
        let counted = format!("{keys} of its keys, with {amount}, were there at {last_ns} ns");
        format!("{figure}: {counted} or later, and not at {lacking_ns} ns or later{why}")
    });
    let shown = |one: &Gone<'_>| {
        let why = of_its_map(report, one.figure, kernel);
        let (figure, last) = (of(report, one.figure, one.subject.as_deref()), one.last);
        format!("{figure}: {} at {} ns, not there at {} ns{why}", last.value, last.at_ns, one.lacking_ns)
    };
    let lines = gone.iter().map(shown).chain(keys).collect();
    FindingStatus::from_evidence(Certainty::Proven, lines)
}

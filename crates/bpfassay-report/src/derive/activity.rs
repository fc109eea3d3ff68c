// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs in which the kernel did something else than in the other rounds of their cell: a finding about the measurement, not about what is under test.

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_protocol::message::PhaseActivity;
use bpfassay_results::{Outcome, Results};

/// Below so many runs of a cell nothing is usual.
const FEWEST: usize = 3;

/// What is not counted exactly is unusual where it is farther from the median than half of it, and than this.
const FAR: u64 = 100;

/// A counter of the whole kernel.
type Counter = (&'static str, fn(&PhaseActivity) -> Option<u64>);

/// Those that vary from run to run.
const VARYING: &[Counter] = &[
    ("page allocations", |activity| activity.page_allocations),
    ("context switches", |activity| activity.context_switches),
    ("softirqs", |activity| activity.softirqs),
];

/// A line for each phase of a run that sent another number of RPCs of a procedure than the median of its cell, or in which another counter is far from
/// it.
pub(crate) fn unusual(results: &Results) -> Vec<String> {
    type Place<'a> = (&'a str, u32, u32, &'a str);
    let mut phases = BTreeMap::<Place<'_>, Vec<(&str, &PhaseActivity)>>::new();
    for run in results.runs.iter().filter(|run| run.record.is_counted()) {
        let Outcome::Measured(figures) = &run.record.outcome else { continue };
        for phase in &figures.phases {
            let Some(activity) = &phase.activity else { continue };
            let place = (run.record.cell.as_str(), phase.test, phase.repetition, phase.name.as_str());
            phases.entry(place).or_default().push((&run.record.run, activity));
        }
    }
    let mut lines = Vec::new();
    for ((.., phase), runs) in phases.into_iter().filter(|(_, runs)| runs.len() >= FEWEST) {
        let mut found = BTreeMap::<&str, Vec<String>>::new();
        let procedures: BTreeSet<&str> = runs
            .iter()
            .filter_map(|(_, activity)| activity.rpcs.as_ref())
            .flat_map(|rpcs| rpcs.keys().map(String::as_str))
            .collect();
        for procedure in procedures {
            let of = |activity: &PhaseActivity| Some(activity.rpcs.as_ref()?.get(procedure).copied().unwrap_or(0));
            compare(&runs, of, &|count, usual| count != usual, &format!("RPCs {procedure}"), &mut found);
        }
        for (name, of) in VARYING {
            let is_far = |count: u64, usual: u64| count.abs_diff(usual) > (usual / 2).max(FAR);
            compare(&runs, of, &is_far, name, &mut found);
        }
        lines.extend(found.into_iter().map(|(run, differences)| {
            let differences = differences.join(", ");
            format!("{run}, {phase}: not as in the other rounds, which is of the measurement and not of the tool: {differences}")
        }));
    }
    lines
}

/// Adds the runs whose counter `is_other` than the median.
fn compare<'a>(
    runs: &[(&'a str, &PhaseActivity)],
    of: impl Fn(&PhaseActivity) -> Option<u64>,
    is_other: &dyn Fn(u64, u64) -> bool,
    name: &str,
    found: &mut BTreeMap<&'a str, Vec<String>>,
) {
    let counts: Vec<(&str, u64)> = runs.iter().filter_map(|(run, activity)| Some((*run, of(activity)?))).collect();
    let mut sorted: Vec<u64> = counts.iter().map(|(_, count)| *count).collect();
    sorted.sort_unstable();
    let Some(&usual) = sorted.get(sorted.len() / 2).filter(|_| sorted.len() >= FEWEST) else { return };
    for (run, count) in counts.into_iter().filter(|&(_, count)| is_other(count, usual)) {
        found.entry(run).or_default().push(format!("{name} {count} (usually {usual})"));
    }
}

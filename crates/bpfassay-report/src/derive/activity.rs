// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds runs in which the kernel's activity differs from the other runs of the boot. This is a
//! finding about the measurement, not about what is under test.

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_protocol::message::PhaseActivity;
use bpfassay_results::{Outcome, Results, RunRecord, RunResult};
use bpfassay_study::Plan;

/// Fewer runs do not show what is usual.
const FEWEST: usize = 3;

/// The smallest unusual distance from the median for counters that are not exact. The distance must
/// also exceed a fiftieth of the median, and [`DEVIATIONS`]. The value is ten times what ten boots
/// of `quick` showed (results/seeds.md).
const FAR: u64 = 30;

/// The smallest unusual distance in median absolute deviations, for counters that vary more.
const DEVIATIONS: u64 = 8;

/// A counter of the whole kernel: its name and how to read it.
type Counter = (&'static str, fn(&PhaseActivity) -> Option<u64>);

/// Counters that vary from run to run.
const VARYING: &[Counter] = &[
    ("page allocations", |activity| activity.page_allocations),
    ("context switches", |activity| activity.context_switches),
    ("softirqs", |activity| activity.softirqs),
];

/// Identifies runs that do the same work: the runs of one boot of the baseline, the control and the
/// bundled tracer. Runs of another tool are compared among themselves, because the tool does work,
/// too.
type Fellows<'a> = (&'a str, bool, bool, &'a str);

fn fellows(record: &RunRecord, has_tool: bool) -> Fellows<'_> {
    (&record.block, record.statistics, record.has_reference, if has_tool { &record.cell } else { "" })
}

/// Reports each phase of a run with an unusual activity, one line each. The number of RPCs of a
/// procedure is unusual if it is not the median of the boot's runs, and other counters if they are
/// far from it.
pub(crate) fn unusual(results: &Results) -> Vec<String> {
    unusual_of(&results.plan, results.runs.iter())
}

/// Reports the unusual phases among `runs` of `plan`.
pub(super) fn unusual_of<'a>(plan: &Plan, runs: impl Iterator<Item = &'a RunResult>) -> Vec<String> {
    type ActivityPlace<'a> = (Fellows<'a>, u32, u32, &'a str);
    let with_tools: BTreeSet<&str> =
        plan.cells.iter().filter(|cell| cell.tool.is_some()).map(|cell| cell.id.as_str()).collect();
    let mut phases = BTreeMap::<ActivityPlace<'_>, Vec<(&str, &PhaseActivity)>>::new();
    for run in runs.filter(|run| !run.record.warm_up) {
        let Outcome::Measured(figures) = &run.record.outcome else { continue };
        // Which of several nodes opens a file first differs from run to run, and so does what the
        // server revokes for that.
        if !run.record.nodes.is_empty() {
            continue;
        }
        for phase in &figures.phases {
            let Some(activity) = &phase.activity else { continue };
            let of = fellows(&run.record, with_tools.contains(run.record.cell.as_str()));
            let place = (of, phase.test, phase.repetition, phase.name.as_str());
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
            compare(&runs, of, |_, _| 0, &format!("RPCs {procedure}"), &mut found);
        }
        for (name, of) in VARYING {
            let far = |usual: u64, deviation: u64| FAR.max(usual / 50).max(deviation.saturating_mul(DEVIATIONS));
            compare(&runs, of, far, name, &mut found);
        }
        lines.extend(found.into_iter().map(|(run, differences)| {
            let differences = differences.join(", ");
            format!("{run}, {phase}: not as in the other runs of its boot, which is of the measurement and not of the tool: {differences}")
        }));
    }
    lines
}

/// Adds the runs whose counter is farther from the median than `limit`, a function of the median
/// and the median absolute deviation.
fn compare<'a>(
    runs: &[(&'a str, &PhaseActivity)],
    of: impl Fn(&PhaseActivity) -> Option<u64>,
    limit: impl Fn(u64, u64) -> u64,
    name: &str,
    found: &mut BTreeMap<&'a str, Vec<String>>,
) {
    let counts: Vec<(&str, u64)> = runs.iter().filter_map(|(run, activity)| Some((*run, of(activity)?))).collect();
    if counts.len() < FEWEST {
        return;
    }
    let Some(usual) = median(counts.iter().map(|(_, count)| *count)) else { return };
    let Some(deviation) = median(counts.iter().map(|(_, count)| count.abs_diff(usual))) else { return };
    let far = limit(usual, deviation);
    for (run, count) in counts.into_iter().filter(|(_, count)| count.abs_diff(usual) > far) {
        found.entry(run).or_default().push(format!("{name} {count} (usually {usual})"));
    }
}

/// Returns the median; of an even number of counts, the upper middle one.
fn median(counts: impl Iterator<Item = u64>) -> Option<u64> {
    let mut sorted: Vec<u64> = counts.collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums results up for the caller: the exit code follows from the conclusion.

use bpfassay_results::{Outcome, Results, RunResult};
use bpfassay_stats::Verdict;

/// The conclusion from results. The first conclusion that applies is reported: known faults first,
/// then failures, then unknown results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// A gate found a regression.
    Regression,
    /// A run did not end as expected, or lacks a figure that it should have.
    Unexpected,
    /// The host failed a run, or runs of the plan were not done.
    Unfinished,
    /// A gate could not be decided.
    Inconclusive,
    /// Everything was measured and is as expected.
    AsExpected,
}

/// Draws the conclusion from `results`.
#[must_use]
pub fn conclusion(results: &Results) -> Conclusion {
    let any = |verdict: Verdict| results.gates.iter().any(|gate| gate.verdict == verdict);
    let is_unfinished = results.cells.iter().any(|cell| {
        let runs = cell.runs;
        runs.measured.saturating_add(runs.refused).saturating_add(runs.failed) < runs.planned
    });
    match () {
        () if any(Verdict::Regression) => Conclusion::Regression,
        () if !as_expected(results) => Conclusion::Unexpected,
        () if is_unfinished || failed_by_host(results) > 0 => Conclusion::Unfinished,
        () if any(Verdict::Inconclusive) => Conclusion::Inconclusive,
        () => Conclusion::AsExpected,
    }
}

/// Counts the runs that the host failed, which do not count against what is under test.
#[must_use]
pub fn failed_by_host(results: &Results) -> usize {
    results.runs.iter().filter(|run| run.record.is_failed_by_host()).count()
}

/// Whether each completed run was measured with all figures, failed by the host, or refused as the
/// study expects, and each kernel feature came out as expected.
fn as_expected(results: &Results) -> bool {
    let failed = |run: &RunResult| matches!(run.record.outcome, Outcome::Failed(_)) && !run.record.is_failed_by_host();
    // Other runs' missing figures show in the cells.
    let lacks = |run: &RunResult| {
        let mut metrics = run.derived.iter().flat_map(|derived| &derived.metrics);
        run.record.control && metrics.any(|metric| metric.calls_of.is_none() && metric.value.value().is_none())
    };
    let cells = || results.cells.iter();
    results.runs.iter().all(|run| !failed(run) && !lacks(run))
        && cells().all(|cell| !cell.attach.is_surprise() && cell.without_figures().is_none() && !cell.lacks_counts())
        && results.kernel_features.iter().all(|matrix| matrix.surprises().next().is_none())
}

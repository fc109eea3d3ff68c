// SPDX-License-Identifier: MIT OR Apache-2.0
//! Coverage: what the tracer counted of each path of the workload `io-paths`.

use bpfassay_protocol::{
    IoPath, Operation,
    io_path::{Amount, Expected, IoPathsSummary, RefusedCall},
    message::{RunFigures, WorkloadPhase},
    operation::{Direction, Totals},
};

use super::bytes::of_key;
use bpfassay_results::{Difference, Figure, PathCoverage};

/// Derives one row per path and operation under which the path moves data, in the order of the
/// table of paths.
pub(super) fn derive(figures: &RunFigures) -> Vec<PathCoverage> {
    let summary: Result<IoPathsSummary, String> = serde_json::from_str(&figures.summary)
        .map_err(|error| format!("the workload's summary cannot be read: {error}"));
    let refused = |path: IoPath| match &summary {
        Ok(summary) => match summary.paths.iter().find(|report| report.path == path) {
            Some(report) => Ok(report.refused.clone()),
            None => Err("the workload's summary does not report its outcome".to_owned()),
        },
        Err(reason) => Err(reason.clone()),
    };
    IoPath::ALL
        .iter()
        .flat_map(|&path| path.expected().iter().map(move |expected| (path, expected)))
        .map(|(path, expected)| {
            let phase = figures.phases.iter().find(|phase| phase.name == path.name());
            row(figures, path, expected, phase, refused(path))
        })
        .collect()
}

fn row(
    figures: &RunFigures,
    path: IoPath,
    expected: &Expected,
    phase: Option<&WorkloadPhase>,
    refused: Result<Option<RefusedCall>, String>,
) -> PathCoverage {
    let operations = counted_as(expected.operation);
    let (moved, traced) = match (&refused, phase) {
        (Err(reason), _) => (Figure::missing(reason.as_str()), Figure::missing(reason.as_str())),
        (Ok(Some(call)), _) => {
            let reason = format!("not done: {}: {}", call.call, call.message);
            (Figure::missing(reason.as_str()), Figure::missing(reason))
        }
        (Ok(None), None) => {
            let reason = "the workload announced no such phase";
            (Figure::missing(reason), Figure::missing(reason))
        }
        (Ok(None), Some(phase)) => {
            let totals = operations.iter().filter_map(|operation| phase.moved.get(operation)).copied();
            (Figure::Value(totals.fold(Totals::default(), sum)), traced(figures, operations, phase))
        }
    };
    let difference = match (&traced, &moved) {
        (Figure::NotMeasured(reason), _) | (_, Figure::NotMeasured(reason)) => Figure::missing(reason.as_str()),
        (Figure::Value(traced), Figure::Value(moved)) => Figure::Value(Difference {
            bytes: less(traced.bytes, moved.bytes),
            calls: (expected.amount != Amount::Pages).then(|| less(traced.calls, moved.calls)),
            errors: less(traced.errors, moved.errors),
        }),
    };
    PathCoverage { path, operation: expected.operation, moved, traced, difference, refused: refused.ok().flatten() }
}

/// Returns the operations that count for `operation`: operations that move data in the same
/// direction, under any name that a tracer uses.
fn counted_as(operation: Operation) -> &'static [Operation] {
    const IN: &[Operation] = &[Operation::Read, Operation::Readv, Operation::MapRead];
    const OUT: &[Operation] = &[Operation::Write, Operation::Writev, Operation::MapWrite];
    match operation.direction() {
        Some(Direction::In) => IN,
        Some(Direction::Out) => OUT,
        None => match Operation::ALL.iter().position(|&known| known == operation) {
            Some(index) => &Operation::ALL[index..=index],
            None => &[],
        },
    }
}

fn traced(figures: &RunFigures, operations: &[Operation], phase: &WorkloadPhase) -> Figure<Totals> {
    if figures.probe.is_baseline() {
        return Figure::missing("the baseline attaches nothing");
    }
    let (Some(before), Some(after)) = (&phase.interval.before.tracer, &phase.interval.after.tracer) else {
        return Figure::missing("the tracer was not read at both barriers");
    };
    let at =
        |sample| operations.iter().map(|&operation| of_key(figures, operation, sample)).fold(Totals::default(), sum);
    let (before, after) = (at(before), at(after));
    if (after.calls, after.bytes, after.errors) < (before.calls, before.bytes, before.errors)
        || after.bytes < before.bytes
        || after.errors < before.errors
    {
        return Figure::missing("the tracer's counters went back");
    }
    Figure::Value(after - before)
}

fn sum(mut sum: Totals, more: Totals) -> Totals {
    sum += more;
    sum
}

/// Computes `left - right`, saturating, since a tracer's counts can be arbitrary.
pub(super) fn less(left: u64, right: u64) -> i64 {
    let difference = i128::from(left) - i128::from(right);
    i64::try_from(difference).unwrap_or(if difference > 0 { i64::MAX } else { i64::MIN })
}

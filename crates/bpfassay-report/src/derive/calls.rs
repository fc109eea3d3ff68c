// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time per call: of a phase, what is within the calls that move its data, without open, fsync and close.

use bpfassay_protocol::{
    calls::CallTimes,
    message::{RunFigures, WorkloadPhase},
};
use bpfassay_results::{Figure, NO_CALL_TIMES, RunMetric, Work};
use bpfassay_study::Metric;

use super::runs::run_metric;

/// The metric of the calls of a bandwidth's phases, over all repetitions; `None` where they were not timed.
pub(super) fn metric(figures: &RunFigures, bandwidth: &RunMetric) -> Option<RunMetric> {
    let work = bandwidth.work.value()?;
    let in_calls_ns = *work.in_calls_ns.value()?;
    let times = || phases(figures, &bandwidth.name).filter_map(|phase| phase.calls.as_ref());
    let calls = times().fold(0, |sum: u64, times| sum.saturating_add(times.calls));
    let value = match calls {
        0 => Figure::missing(NO_CALL_TIMES),
        _ => Figure::Value(in_calls_ns as f64 / calls as f64),
    };
    let of_calls = Work {
        elapsed_ns: in_calls_ns,
        busy_ns: Figure::missing("how long the guest was idle within calls is not read"),
        calls,
        bytes: work.bytes,
        in_calls_ns: Figure::Value(in_calls_ns),
    };
    Some(run_metric(Metric::of_calls(bandwidth.name), value, Figure::Value(of_calls), Vec::new()))
}

/// The phases named `name`.
pub(super) fn phases<'a>(figures: &'a RunFigures, name: &str) -> impl Iterator<Item = &'a WorkloadPhase> {
    figures.phases.iter().filter(move |phase| phase.name == name)
}

/// The time within calls of a phase that made `calls`, or why it is not known.
pub(super) fn time(times: Option<&CallTimes>, calls: u64) -> Figure<u64> {
    match times {
        Some(times) => Figure::Value(times.sum_ns),
        None if calls == 0 => Figure::missing("no call moves the data of mapped files"),
        None => Figure::missing(NO_CALL_TIMES),
    }
}

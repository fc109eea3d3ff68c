// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time per call: the part of a phase within the calls that move data, without open, fsync and
//! close.

use bpfassay_protocol::{
    call_list::CallTimes,
    message::{RunFigures, WorkloadPhase},
};
use bpfassay_results::{Figure, NO_CALL_TIMES, RunMetric, Work};
use bpfassay_study::Metric;

use super::pairs::run_metric;

/// Derives the time per call of a bandwidth's phases, over all repetitions; `None` if the calls
/// were not timed. The value is the trimmed mean: ticks of the timer fall into some calls and not
/// into others, so the mean of all calls varies more than what probes cost.
pub(super) fn metric(figures: &RunFigures, bandwidth: &RunMetric, is_of_nodes: bool) -> Option<RunMetric> {
    let work = bandwidth.work.value()?;
    work.in_calls_ns.value()?;
    let (mut calls, mut sum_ns, mut all_calls) = (0_u64, 0_u64, 0_u64);
    let mut is_whole = true;
    for times in phases(figures, &bandwidth.name).filter_map(|phase| phase.calls.as_ref()) {
        let middle = times.distribution.unwrap_or_default();
        is_whole &= times.distribution.is_some();
        calls = calls.saturating_add(middle.trimmed_calls);
        sum_ns = sum_ns.saturating_add(middle.trimmed_sum_ns);
        all_calls = all_calls.saturating_add(times.calls);
    }
    let (value, work) = if is_whole && calls > 0 {
        let bytes = u128::from(work.bytes) * u128::from(calls) / u128::from(all_calls.max(1));
        let of_middle = Work {
            elapsed_ns: sum_ns,
            busy_ns: Figure::missing("how long the guest was idle within calls is not read"),
            calls,
            bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
            in_calls_ns: Figure::Value(sum_ns),
        };
        (Figure::Value(sum_ns as f64 / calls as f64), Figure::Value(of_middle))
    } else {
        let reason = match is_of_nodes {
            true => "the times of calls are known of each node alone: `nodes` of the run has them",
            false => "a phase had more calls than the workload has room for the times of",
        };
        (Figure::missing(reason), Figure::missing(reason))
    };
    Some(run_metric(Metric::of_calls(bandwidth.name), value, work, Vec::new()))
}

/// Returns the phases named `name`.
pub(super) fn phases<'a>(figures: &'a RunFigures, name: &str) -> impl Iterator<Item = &'a WorkloadPhase> {
    figures.all_phases().filter(move |phase| phase.name == name)
}

/// Returns the time within calls of a phase that made `calls` calls, or why it is not known.
pub(super) fn time(times: Option<&CallTimes>, calls: u64) -> Figure<u64> {
    match times {
        Some(times) => Figure::Value(times.sum_ns),
        None if calls == 0 => Figure::missing("no call moves the data of mapped files"),
        None => Figure::missing(NO_CALL_TIMES),
    }
}

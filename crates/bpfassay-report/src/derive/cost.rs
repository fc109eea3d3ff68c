// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of a probe configuration: additional instructions compared with the baseline, per call
//! and per MiB.

use std::collections::BTreeMap;

use bpfassay_protocol::{
    Operation,
    message::{Interval, RunFigures, WorkloadPhase},
    operation::Totals,
};
use bpfassay_stats::{StatsError, difference::mean_difference};
use bpfassay_study::Clock;

use super::{
    calls,
    context::DeriveContext,
    pairs::{observations, work_of},
};
use bpfassay_results::{Basis, Cost, Figure, RunResult, Work};

const MIB: f64 = 1_048_576.0;

/// Sums the work of the phases named `name` in a guest of `cpus` CPUs: time, and the `totals` of
/// calls and bytes of each phase. Not measured if no phase has barriers.
pub(super) fn work(
    figures: &RunFigures,
    name: &str,
    totals: impl Fn(&WorkloadPhase) -> Totals,
    cpus: u32,
) -> Figure<Work> {
    let mut work: Option<Work> = None;
    for phase in calls::phases(figures, name) {
        let sum = work.get_or_insert(Work {
            elapsed_ns: 0,
            busy_ns: Figure::Value(0),
            calls: 0,
            bytes: 0,
            in_calls_ns: Figure::Value(0),
        });
        let Some(elapsed) = elapsed(&phase.interval) else {
            return Figure::missing("the clock went back between two barriers");
        };
        sum.elapsed_ns = sum.elapsed_ns.saturating_add(elapsed);
        sum.busy_ns = match (&sum.busy_ns, busy(&phase.interval, cpus)) {
            (Figure::Value(sum), Ok(busy)) => Figure::Value(sum.saturating_add(busy)),
            (Figure::Value(_), Err(reason)) => Figure::missing(reason),
            (missing, _) => missing.clone(),
        };
        let totals = totals(phase);
        sum.calls = sum.calls.saturating_add(totals.calls);
        sum.bytes = sum.bytes.saturating_add(totals.bytes);
        sum.in_calls_ns = match (&sum.in_calls_ns, calls::time(phase.calls.as_ref(), totals.calls)) {
            (Figure::Value(sum), Figure::Value(time)) => Figure::Value(sum.saturating_add(time)),
            (Figure::NotMeasured(_), _) => continue,
            (_, missing) => missing,
        };
    }
    work.map_or_else(|| Figure::missing("the engine cannot be held between phases"), Figure::Value)
}

/// The calls and bytes with which `phase` moved the data of `operation`.
pub(super) fn moved(operation: Operation) -> impl Fn(&WorkloadPhase) -> Totals {
    move |phase| phase.moved.get(&operation).copied().unwrap_or_default()
}

pub(super) fn elapsed(interval: &Interval) -> Option<u64> {
    interval.after.monotonic_ns.checked_sub(interval.before.monotonic_ns)
}

/// Returns the time in which a guest of `cpus` CPUs worked, in nanoseconds.
///
/// The kernel counts how long each CPU was idle, and the guest's agent reads the sum. Under the
/// instruction clock, CPUs take turns: one is idle while another works, so the sum is not the time
/// during which all were idle.
///
/// # Errors
/// Why the time is not known.
pub(super) fn busy(interval: &Interval, cpus: u32) -> Result<u64, &'static str> {
    if cpus > 1 {
        return Err("the kernel does not report how long all CPUs were idle at once");
    }
    let idle = interval.after.idle_ns.zip(interval.before.idle_ns);
    let (after, before) = idle.ok_or("the kernel does not report how long it was idle")?;
    let idle = after.checked_sub(before).ok_or("the time for which the kernel was idle went back")?;
    let elapsed = elapsed(interval).ok_or("the clock went back between two barriers")?;
    elapsed.checked_sub(idle).ok_or("the kernel was idle for longer than the time that passed")
}

/// Derives the cost of `others` over `baseline`, paired by block and round.
pub(super) fn cost(
    context: &DeriveContext<'_>,
    baseline: &[&RunResult],
    others: &[&RunResult],
    metric: &str,
) -> Figure<Cost> {
    if context.plan.study.clock != Clock::Instructions {
        return Figure::missing("the study's clock does not count instructions");
    }
    fn place(run: &RunResult) -> (&str, u32) {
        (&run.record.block, run.record.round)
    }
    let of = |run: &RunResult| work_of(run, metric).and_then(Figure::value).cloned();
    let baseline: BTreeMap<_, Work> = baseline.iter().filter_map(|run| Some((place(run), of(run)?))).collect();
    let pairs: Vec<(&str, Work, Work)> = others
        .iter()
        .filter_map(|run| Some((run.record.block.as_str(), baseline.get(&place(run))?.clone(), of(run)?)))
        .collect();
    if pairs.is_empty() {
        let reason = others.iter().find_map(|run| work_of(run, metric)?.reason());
        return Figure::missing(reason.unwrap_or("no round has both a baseline run and a run of this cell"));
    }
    if pairs.iter().any(|(_, without, with)| (without.calls, without.bytes) != (with.calls, with.bytes)) {
        return Figure::missing("the baseline made other calls than the run that it is compared with");
    }
    if pairs.iter().any(|(_, _, with)| with.calls == 0) {
        return Figure::missing("the workload made no such calls");
    }
    if pairs.iter().any(|(_, _, with)| with.bytes == 0) {
        return Figure::missing("the cost of the whole guest is derived for calls that move data");
    }
    let busy = |work: &Work| work.busy_ns.value().copied();
    let all_busy = pairs.iter().all(|(_, without, with)| busy(without).is_some() && busy(with).is_some());
    let time = |work: &Work| if all_busy { busy(work).unwrap_or(work.elapsed_ns) } else { work.elapsed_ns } as f64;
    let extra = |without: &Work, with: &Work| time(with) - time(without);
    let mut by_block = BTreeMap::<&str, Vec<[f64; 3]>>::new();
    for (block, without, with) in &pairs {
        let (extra, calls) = (extra(without, with), with.calls as f64);
        let pair = [extra / calls, extra / (with.bytes as f64 / MIB), time(without) / calls];
        by_block.entry(block).or_default().push(pair);
    }
    let of_each = |which: usize| {
        observations(
            by_block.iter().map(|(&block, pairs)| (block, pairs.iter().map(|pair| pair[which]).collect())).collect(),
        )
    };
    let ((unit, per_call), (_, per_mib), (_, baseline)) = (of_each(0), of_each(1), of_each(2));
    let levels = context.levels;
    let estimate = || -> Result<Cost, StatsError> {
        Ok(Cost {
            per_call: levels.estimate(|level| mean_difference(&per_call, level))?,
            per_mib: levels.estimate(|level| mean_difference(&per_mib, level))?,
            baseline: Some(baseline.iter().sum::<f64>() / baseline.len() as f64),
            pooled: None,
            basis: if all_busy { Basis::Busy } else { Basis::Elapsed },
            calls: pairs.iter().map(|(_, _, with)| with.calls).max().unwrap_or(0),
            unit,
        })
    };
    estimate().into()
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::message::Reading;

    use super::*;

    #[test]
    fn time_without_work_is_known_or_there_is_a_reason() {
        let reading = |(monotonic_ns, idle_ns)| Reading { monotonic_ns, idle_ns, tracer: None, mountstats: None };
        let between = |before, after| Interval { before: reading(before), after: reading(after) };
        assert_eq!(busy(&between((10, Some(4)), (30, Some(9))), 1), Ok(15));
        for (before, after, cpus, part) in [
            ((10, Some(4)), (30, Some(9)), 2, "all CPUs"),
            ((10, None), (30, Some(9)), 1, "does not report"),
            ((10, Some(4)), (30, None), 1, "does not report"),
            ((10, Some(9)), (30, Some(4)), 1, "idle went back"),
            ((30, Some(4)), (10, Some(9)), 1, "clock went back"),
            ((10, Some(4)), (30, Some(25)), 1, "longer than the time that passed"),
        ] {
            assert!(busy(&between(before, after), cpus).is_err_and(|reason| reason.contains(part)), "{part}");
        }
    }
}

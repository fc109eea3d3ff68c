// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of one run.

use bpfassay_protocol::{
    message::{Interval, RunFigures, WorkloadPhase},
    tracer,
};
use bpfassay_stats::{
    relative_error,
    relative_error::{CounterReading, mean_of_instantaneous},
    summarise,
};
use bpfassay_study::{Cell, Plan};

use super::{bytes, cost, coverage, events, merit};
use crate::ior::{self, Reported};
use bpfassay_results::{
    Access, AccessKey, Figure, Merit, Outcome, RepetitionFigures, RunAccess, RunDerived, RunRecord,
};

const MIB: f64 = 1_048_576.0;

/// What follows from the raw figures of `record`, if it has any.
pub(super) fn derive(plan: &Plan, cell: &Cell, record: &RunRecord) -> Option<RunDerived> {
    let Outcome::Measured(figures) = &record.outcome else { return None };
    // The tracer counted for another tool's sake: its figures stand with that tool's.
    if record.has_reference {
        return None;
    }
    let kind = plan.study.workload(&cell.case)?;
    let losses = match (&figures.whole.after.tracer, figures.probe.is_baseline()) {
        (_, true) => Figure::missing("the baseline attaches nothing"),
        (Some(sample), false) => Figure::Value(sample.losses.clone()),
        (None, false) => Figure::missing("the tracer was not read at the end of the run"),
    };
    let events = events::derive(figures);
    let coverage = if kind.bytes_per_path().is_some() { coverage::derive(figures) } else { Vec::new() };
    if !kind.counts_bytes() {
        let outcome = bpfassay_study::Outcome {
            summary: &figures.summary,
            elapsed_ns: cost::elapsed(&figures.whole),
            busy_ns: cost::busy(&figures.whole),
        };
        let accesses = kind.measure(plan.study.clock, &outcome).into_iter().map(|(metric, value)| {
            let figure = value.map_or_else(Figure::missing, Figure::Value);
            merit::access(Access::of(&metric), Merit { figure, unit: metric.unit, better: metric.better })
        });
        let moved = kind.bytes(&figures.summary).into_iter().flatten();
        let moved = moved.map(|(operation, bytes)| (operation, bytes.map_or_else(Figure::missing, Figure::Value)));
        let (accesses, bytes) = (accesses.collect(), bytes::reported(figures, moved));
        return Some(RunDerived { accesses, bytes, coverage, events, losses });
    }
    let reported = if kind.phases("").is_some() { ior::reported(&figures.summary) } else { Ok(Vec::new()) };
    let workload = bytes::Workload {
        interface: cell.interface,
        neighbour: cell.workload.neighbour,
        not_reported: &|operation| kind.not_reported(&cell.case, operation),
        reported: reported.as_deref().map_err(String::as_str),
    };
    let mut accesses: Vec<RunAccess> = match &reported {
        Ok(reported) => Access::DATA
            .into_iter()
            .filter_map(|access| of_access(plan, figures, &workload, access, reported))
            .collect(),
        Err(reason) => accesses_without_summary(figures, reason),
    };
    let mut bytes = bytes::derive(figures, &workload);
    // Of 200,000 runs what is held in reserve would be hundreds of megabytes.
    accesses.shrink_to_fit();
    bytes.shrink_to_fit();
    Some(RunDerived { accesses, bytes, coverage, events, losses })
}

/// A summary that cannot be read leaves the accesses that were seen as phases without figures, but not unmentioned.
fn accesses_without_summary(figures: &RunFigures, reason: &str) -> Vec<RunAccess> {
    let seen =
        |access: &Access| figures.phases.is_empty() || figures.phases.iter().any(|phase| phase.name == access.name());
    Access::DATA
        .into_iter()
        .filter(seen)
        .map(|access| RunAccess {
            access,
            bandwidth_mib_s: Figure::missing(reason),
            merit: None,
            relative_error_ior_interval: Figure::missing(reason),
            relative_error_instantaneous: Figure::missing(reason),
            work: cost::work(figures, access),
            repetitions: Vec::new(),
        })
        .collect()
}

fn of_access(
    plan: &Plan,
    figures: &RunFigures,
    workload: &bytes::Workload<'_>,
    access: Access,
    reported: &[Reported],
) -> Option<RunAccess> {
    let of_access: Vec<&Reported> = reported.iter().filter(|one| one.key.access == access).collect();
    if of_access.is_empty() {
        return None;
    }
    let repetitions: Vec<RepetitionFigures> = of_access.iter().map(|one| repetition(plan, figures, one)).collect();
    let operation = access.operation();
    let over_all = |pick: fn(&RepetitionFigures) -> &Figure<f64>| geometric_mean(repetitions.iter().map(pick));
    let bandwidth_mib_s = over_all(|figures| &figures.bandwidth_mib_s);
    let (relative_error_ior_interval, relative_error_instantaneous) =
        match (figures.phases.is_empty(), operation.and_then(|operation| (workload.not_reported)(operation))) {
            (false, _) => (
                over_all(|figures| &figures.relative_error_ior_interval),
                over_all(|figures| &figures.relative_error_instantaneous),
            ),
            (true, Some(reason)) => (Figure::missing(reason), Figure::missing(reason)),
            (true, None) => (
                error_of_whole_run(figures, access, &of_access),
                sampled_over_whole_run(plan, figures, access, &bandwidth_mib_s),
            ),
        };
    let work = cost::work(figures, access);
    Some(RunAccess {
        access,
        bandwidth_mib_s,
        merit: None,
        relative_error_ior_interval,
        relative_error_instantaneous,
        work,
        repetitions,
    })
}

fn repetition(plan: &Plan, figures: &RunFigures, reported: &Reported) -> RepetitionFigures {
    let number = |value: Option<f64>, what: &str| match value.filter(|value| value.is_finite() && *value > 0.0) {
        Some(value) => Figure::Value(value),
        None => Figure::missing(format!("IOR reports no {what}")),
    };
    let bandwidth_mib_s = number(reported.bandwidth, "bandwidth");
    let total_s = number(reported.total_s, "time");
    let phase = phase_of(figures, reported.key);
    let relative_error_ior_interval = match (&phase, &bandwidth_mib_s, &own_interval_s(reported)) {
        (Err(reason), _, _) => Figure::missing(reason.as_str()),
        (_, Figure::NotMeasured(reason), _) | (_, _, Figure::NotMeasured(reason)) => Figure::missing(reason.as_str()),
        (Ok(phase), Figure::Value(bandwidth), Figure::Value(total)) => {
            match traced(figures, reported.key.access, &phase.interval) {
                Figure::Value(bytes) => ratio(*bandwidth, bytes as f64 / MIB / total),
                Figure::NotMeasured(reason) => Figure::NotMeasured(reason),
            }
        }
    };
    let sampled = match &phase {
        Err(reason) => Err(reason.clone()),
        Ok(phase) => sampled(plan, figures, reported.key.access, Some(phase)),
    };
    let (relative_error_instantaneous, sampling_intervals) = match (sampled, &bandwidth_mib_s) {
        (Err(reason), _) => (Figure::missing(reason.as_str()), Figure::missing(reason)),
        (Ok((mean, n)), bandwidth) => (with_mean(bandwidth, mean), Figure::Value(n)),
    };
    RepetitionFigures {
        key: reported.key,
        bandwidth_mib_s,
        total_s,
        relative_error_ior_interval,
        relative_error_instantaneous,
        sampling_intervals,
    }
}

/// Bytes that the tracer counted of `access`.
fn traced(figures: &RunFigures, access: Access, interval: &Interval) -> Figure<u64> {
    let none = || Figure::missing("it moves no bytes by calls that are known");
    access.operation().map_or_else(none, |operation| bytes::traced(figures, operation, interval))
}

/// IOR's own interval, first open to last close, in seconds. IOR prints it rounded to 0.1 ms; bytes / bandwidth is the same
/// interval with more digits, where the bytes are settled.
fn own_interval_s(reported: &Reported) -> Figure<f64> {
    let positive = |value: &f64| value.is_finite() && *value > 0.0;
    let from_bytes = reported.bytes.zip(reported.bandwidth).map(|(bytes, bandwidth)| bytes as f64 / MIB / bandwidth);
    match from_bytes.filter(positive).or(reported.total_s.filter(positive)) {
        Some(seconds) => Figure::Value(seconds),
        None => Figure::missing("IOR reports no time"),
    }
}

fn phase_of(figures: &RunFigures, key: AccessKey) -> Result<&WorkloadPhase, String> {
    if figures.phases.is_empty() {
        return Err("the engine cannot be held between phases: only figures of the whole run".to_owned());
    }
    figures
        .phases
        .iter()
        .find(|phase| phase.name == key.access.name() && (phase.test, phase.repetition) == (key.test, key.repetition))
        .ok_or_else(|| format!("no barriers around {} of repetition {}", key.access, key.repetition))
}

/// Over all repetitions at once: bytes that IOR reports / bytes traced. The time, the same for both, drops out.
fn error_of_whole_run(figures: &RunFigures, access: Access, reported: &[&Reported]) -> Figure<f64> {
    let mut moved = 0.0;
    for one in reported {
        match (one.bandwidth, own_interval_s(one)) {
            (Some(bandwidth), Figure::Value(total)) => moved += bandwidth * total,
            _ => return Figure::missing("IOR reports no bandwidth or time for a repetition"),
        }
    }
    match traced(figures, access, &figures.whole) {
        Figure::Value(bytes) => ratio(moved, bytes as f64 / MIB),
        Figure::NotMeasured(reason) => Figure::NotMeasured(reason),
    }
}

fn sampled_over_whole_run(plan: &Plan, figures: &RunFigures, access: Access, bandwidth: &Figure<f64>) -> Figure<f64> {
    match sampled(plan, figures, access, None) {
        Ok((mean, _)) => with_mean(bandwidth, mean),
        Err(reason) => Figure::missing(reason),
    }
}

/// Mean of instantaneous bandwidths in MiB/s and the number of intervals: over the samples around `phase`, or all.
fn sampled(
    plan: &Plan,
    figures: &RunFigures,
    access: Access,
    phase: Option<&WorkloadPhase>,
) -> Result<(f64, u64), String> {
    if figures.probe.is_baseline() {
        return Err("the baseline attaches nothing".to_owned());
    }
    let Some(interval) = plan.study.design.sampling_interval_ms else {
        return Err("the study does not sample".to_owned());
    };
    let readings = readings(figures, access, interval);
    // From the last sample before the phase to the first after it: its sampling intervals, the partial ones included.
    let around = match phase {
        None => readings.as_slice(),
        Some(phase) => {
            let (begin, end) = (phase.interval.before.monotonic_ns, phase.interval.after.monotonic_ns);
            let first = readings.partition_point(|reading| reading.at_ns <= begin).saturating_sub(1);
            let last = readings.partition_point(|reading| reading.at_ns < end).saturating_add(1).min(readings.len());
            readings.get(first..last).unwrap_or_default()
        }
    };
    mean_of_instantaneous(around)
        .map(|(rate, n)| (rate / MIB, n as u64))
        .ok_or_else(|| format!("too short for sampling every {interval} ms: no sampling interval with bytes"))
}

/// What sampling every `interval_ms` shows, from before the run to after it. The tracer lives no longer than the run, so
/// the first and the last reading are not its own samples but those of a monitor that was there already and stays: before
/// and after the run the workload's counters stand still, at what was read at its two ends.
pub(crate) fn readings(figures: &RunFigures, access: Access, interval_ms: u64) -> Vec<CounterReading> {
    let reading = |sample: &tracer::Sample| CounterReading {
        at_ns: sample.monotonic_ns,
        bytes: access.operation().map_or(0, |operation| bytes::of_key(figures, operation, sample).bytes),
    };
    let mut readings: Vec<CounterReading> =
        figures.samples.iter().filter(|sample| sample.label.is_none()).map(reading).collect();
    let (Some(first), Some(last)) = (readings.first().copied(), readings.last().copied()) else { return readings };
    let interval_ns = interval_ms.saturating_mul(1_000_000);
    if let Some(before) = figures.whole.before.tracer.as_ref().map(reading) {
        readings
            .insert(0, CounterReading { at_ns: before.at_ns.min(first.at_ns.saturating_sub(interval_ns)), ..before });
    }
    if let Some(after) = figures.whole.after.tracer.as_ref().map(reading) {
        readings.push(CounterReading { at_ns: after.at_ns.max(last.at_ns.saturating_add(interval_ns)), ..after });
    }
    readings
}

fn with_mean(bandwidth: &Figure<f64>, mean: f64) -> Figure<f64> {
    match bandwidth {
        Figure::Value(bandwidth) => ratio(*bandwidth, mean),
        Figure::NotMeasured(reason) => Figure::missing(reason.as_str()),
    }
}

fn ratio(reported: f64, traced: f64) -> Figure<f64> {
    if traced == 0.0 {
        return Figure::missing("the tracer counted no bytes");
    }
    relative_error(reported, traced).into()
}

/// Geometric mean; one missing figure leaves no mean, with its reason.
fn geometric_mean<'a>(figures: impl Iterator<Item = &'a Figure<f64>>) -> Figure<f64> {
    let mut values = Vec::new();
    for figure in figures {
        match figure {
            Figure::Value(value) => values.push(*value),
            Figure::NotMeasured(reason) => return Figure::missing(reason.as_str()),
        }
    }
    match summarise(&values) {
        Err(error) => Figure::missing(error.to_string()),
        Ok(summary) => match summary.geometric_mean {
            Some(mean) => Figure::Value(mean),
            None => Figure::missing("a figure is not positive"),
        },
    }
}

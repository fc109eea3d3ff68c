// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of one run.

use bpfassay_protocol::{
    Operation,
    message::{RunFigures, WorkloadPhase},
    operation::Totals,
    tracer_messages,
};
use bpfassay_stats::{
    relative_error,
    relative_error::{CounterReading, mean_of_instantaneous},
    summarise,
};
use bpfassay_study::{Cell, Metric, PhaseReport, Plan};

use super::{boot_coverage, bystander, bytes, calls, cost, losses, lost_events, nodes, pairs::run_metric};
use bpfassay_results::{
    Figure, Outcome, RepetitionAccuracy, RepetitionMetric, RunAccuracy, RunDerived, RunMetric, RunRecord,
};

const MIB: f64 = 1_048_576.0;

/// Derives the figures of a run from the raw figures of `record`, if it has any.
pub(super) fn derive(plan: &Plan, cell: &Cell, record: &RunRecord) -> Option<RunDerived> {
    let Outcome::Measured(figures) = &record.outcome else { return None };
    // The tracer counted only as a reference for another tool, whose figures include its counts.
    if record.has_reference {
        return None;
    }
    let kind = plan.study.workload(&cell.case)?;
    let losses = losses::of(figures);
    let events = lost_events::derive(figures);
    let coverage = if kind.bytes_per_path().is_some() { boot_coverage::derive(figures) } else { Vec::new() };
    if !kind.counts_bytes() {
        let outcome = bpfassay_study::MetricInput {
            summary: &figures.summary,
            elapsed_ns: cost::elapsed(&figures.whole),
            busy_ns: cost::busy(&figures.whole, plan.study.guest.cpus).ok(),
        };
        let measured = kind.measure(plan.study.clock, &outcome).into_iter();
        let metrics = measured
            .map(|(metric, value)| {
                let value = value.map_or_else(Figure::missing, Figure::Value);
                let work = match kind.operations() {
                    Some(calls) => {
                        let totals = |_: &WorkloadPhase| Totals { calls, ..Totals::default() };
                        cost::work(figures, &metric.name, totals, plan.study.guest.cpus)
                    }
                    None => Figure::missing("the workload's operations are not calls"),
                };
                run_metric(metric, value, work, Vec::new())
            })
            .collect();
        let moved = kind.bytes(&figures.summary).into_iter().flatten();
        let moved = moved.map(|(operation, bytes)| (operation, bytes.map_or_else(Figure::missing, Figure::Value)));
        let bytes = bytes::reported(figures, moved);
        return Some(RunDerived {
            metrics,
            bystander: Vec::new(),
            accuracy: Vec::new(),
            bytes,
            coverage,
            events,
            losses,
            nodes: Vec::new(),
        });
    }
    let reported = nodes::phases(kind, &figures.summary, &record.nodes).unwrap_or_else(|| Ok(Vec::new()));
    let reported = reported.and_then(|reported| within_the_run(figures, &reported).map(|()| reported));
    let workload = bytes::WorkloadReports {
        interface: cell.interface,
        neighbour: cell.workload.neighbour,
        not_reported: &|operation| kind.not_reported(&cell.case, operation),
        reported: reported.as_deref().map_err(String::as_str),
    };
    let declared = kind.metrics(&cell.case, plan.study.clock);
    let (mut metrics, mut accuracy): (Vec<RunMetric>, Vec<RunAccuracy>) = match &reported {
        Ok(reported) => {
            let is_missing = |metric: &Metric| reported.iter().all(|one| one.name != metric.name);
            let (missing, _): (Vec<Metric>, Vec<Metric>) = declared.into_iter().partition(is_missing);
            let found = reported
                .chunk_by(|one, next| one.name == next.name)
                .filter_map(|of_metric| Some(bandwidth(plan, figures, &workload, of_metric.first()?, of_metric)));
            found.chain(without_figures(plan, missing, figures, "IOR's summary does not report it")).unzip()
        }
        Err(reason) => without_figures(plan, declared, figures, reason).unzip(),
    };
    let of_calls: Vec<RunMetric> =
        metrics.iter().filter_map(|metric| calls::metric(figures, metric, !record.nodes.is_empty())).collect();
    metrics.extend(of_calls);
    let mut bytes = bytes::derive(figures, &workload);
    // The reserved capacity of 200,000 runs would take hundreds of megabytes.
    metrics.shrink_to_fit();
    accuracy.shrink_to_fit();
    bytes.shrink_to_fit();
    let nodes = nodes::derive(&record.nodes);
    let bystander = bystander::of_run(figures, plan.study.guest.cpus);
    Some(RunDerived { metrics, bystander, accuracy, bytes, coverage, events, losses, nodes })
}

/// How far the clock that IOR reads can deviate from the monotonic clock, as a share: as far as the
/// kernel slews it, with some reserve.
const CLOCKS_APART: f64 = 0.01;

/// Half of the last decimal of IOR's times, in seconds.
const ROUNDING_S: f64 = 0.000_05;

/// Checks that the phases `reported` took no longer than their run.
///
/// # Errors
/// Both times.
fn within_the_run(figures: &RunFigures, reported: &[PhaseReport]) -> Result<(), String> {
    let Some(elapsed) = cost::elapsed(&figures.whole) else { return Ok(()) };
    let elapsed = elapsed as f64 / 1e9;
    let times = || reported.iter().filter_map(|one| one.total_s).filter(|time| time.is_finite());
    let (sum, rounding) = (times().sum::<f64>(), times().count() as f64 * ROUNDING_S);
    match sum <= elapsed * (1.0 + CLOCKS_APART) + rounding {
        true => Ok(()),
        false => Err(format!("IOR reports phases of {sum:.4} s, more than the {elapsed:.4} s of the whole run")),
    }
}

/// Returns the bandwidths among `metrics` without values, so that reports mention them.
fn without_figures<'a>(
    plan: &Plan,
    metrics: Vec<Metric>,
    figures: &'a RunFigures,
    reason: &'a str,
) -> impl Iterator<Item = (RunMetric, RunAccuracy)> + use<'a> {
    let cpus = plan.study.guest.cpus;
    let bandwidths = metrics.into_iter().filter_map(|metric| Some((metric.operation?, metric)));
    bandwidths.map(move |(operation, metric)| {
        let work = cost::work(figures, &metric.name, cost::moved(operation), cpus);
        let accuracy = RunAccuracy {
            metric: metric.name,
            relative_error_ior_interval: Figure::missing(reason),
            relative_error_instantaneous: Figure::missing(reason),
            repetitions: Vec::new(),
        };
        (run_metric(metric, Figure::missing(reason), work, Vec::new()), accuracy)
    })
}

/// Derives the metric whose repetitions are `reported`; `first` is the first of them.
fn bandwidth(
    plan: &Plan,
    figures: &RunFigures,
    workload: &bytes::WorkloadReports<'_>,
    first: &PhaseReport,
    reported: &[PhaseReport],
) -> (RunMetric, RunAccuracy) {
    let operation = first.operation;
    let (values, errors): (Vec<_>, Vec<_>) = reported.iter().map(|one| repetition(plan, figures, one)).unzip();
    let work = cost::work(figures, &first.name, cost::moved(operation), plan.study.guest.cpus);
    let value = geometric_mean(values.iter().map(|repetition| &repetition.value));
    let over_all = |pick: fn(&RepetitionAccuracy) -> &Figure<f64>| geometric_mean(errors.iter().map(pick));
    let (relative_error_ior_interval, relative_error_instantaneous) =
        match (figures.phases.is_empty(), (workload.not_reported)(operation)) {
            (false, _) => (
                over_all(|figures| &figures.relative_error_ior_interval),
                over_all(|figures| &figures.relative_error_instantaneous),
            ),
            (true, Some(reason)) => (Figure::missing(reason), Figure::missing(reason)),
            (true, None) => (
                error_of_whole_run(figures, operation, reported),
                sampled_over_whole_run(plan, figures, operation, &value),
            ),
        };
    let accuracy = RunAccuracy {
        metric: first.name,
        relative_error_ior_interval,
        relative_error_instantaneous,
        repetitions: errors,
    };
    (run_metric(first.metric(), value, work, values), accuracy)
}

fn repetition(plan: &Plan, figures: &RunFigures, reported: &PhaseReport) -> (RepetitionMetric, RepetitionAccuracy) {
    let number = |value: Option<f64>, what: &str| match value.filter(|value| value.is_finite() && *value > 0.0) {
        Some(value) => Figure::Value(value),
        None => Figure::missing(format!("IOR reports no {what}")),
    };
    let PhaseReport { test, repetition, operation, .. } = *reported;
    let value = number(reported.bandwidth, "bandwidth");
    let total_s = number(reported.total_s, "time");
    let phase = phase_of(figures, reported);
    let relative_error_ior_interval = match (&phase, &value, &own_interval_s(reported)) {
        (Err(reason), _, _) => Figure::missing(reason.as_str()),
        (_, Figure::NotMeasured(reason), _) | (_, _, Figure::NotMeasured(reason)) => Figure::missing(reason.as_str()),
        (Ok(phase), Figure::Value(bandwidth), Figure::Value(total)) => {
            match bytes::traced(figures, operation, &phase.interval) {
                Figure::Value(bytes) => ratio(*bandwidth, bytes as f64 / MIB / total),
                Figure::NotMeasured(reason) => Figure::NotMeasured(reason),
            }
        }
    };
    let sampled = match &phase {
        Err(reason) => Err(reason.clone()),
        Ok(phase) => sampled(plan, figures, operation, Some(phase)),
    };
    let (relative_error_instantaneous, sampling_intervals) = match (sampled, &value) {
        (Err(reason), _) => (Figure::missing(reason.as_str()), Figure::missing(reason)),
        (Ok((mean, n)), value) => (with_mean(value, mean), Figure::Value(n)),
    };
    let accuracy = RepetitionAccuracy {
        test,
        repetition,
        relative_error_ior_interval,
        relative_error_instantaneous,
        sampling_intervals,
    };
    (RepetitionMetric { test, repetition, value, total_s }, accuracy)
}

/// Returns IOR's interval from the first open to the last close, in seconds. IOR prints it rounded
/// to 0.1 ms. Bytes / bandwidth is the same interval with more digits, if the number of bytes is
/// exact.
fn own_interval_s(reported: &PhaseReport) -> Figure<f64> {
    let positive = |value: &f64| value.is_finite() && *value > 0.0;
    let from_bytes = reported.bytes.zip(reported.bandwidth).map(|(bytes, bandwidth)| bytes as f64 / MIB / bandwidth);
    match from_bytes.filter(positive).or(reported.total_s.filter(positive)) {
        Some(seconds) => Figure::Value(seconds),
        None => Figure::missing("IOR reports no time"),
    }
}

fn phase_of<'a>(figures: &'a RunFigures, reported: &PhaseReport) -> Result<&'a WorkloadPhase, String> {
    if figures.phases.is_empty() {
        return Err("the engine cannot be held between phases: only figures of the whole run".to_owned());
    }
    let found = figures.phases.iter().find(|phase| bytes::is_of(phase, reported));
    found.ok_or_else(|| format!("no barriers around {} of repetition {}", reported.name, reported.repetition))
}

/// Computes the error over all repetitions: bytes that IOR reports / bytes traced. The time is the
/// same for both and cancels out.
fn error_of_whole_run(figures: &RunFigures, operation: Operation, reported: &[PhaseReport]) -> Figure<f64> {
    let mut moved = 0.0;
    for one in reported {
        match (one.bandwidth, own_interval_s(one)) {
            (Some(bandwidth), Figure::Value(total)) => moved += bandwidth * total,
            _ => return Figure::missing("IOR reports no bandwidth or time for a repetition"),
        }
    }
    match bytes::traced(figures, operation, &figures.whole) {
        Figure::Value(bytes) => ratio(moved, bytes as f64 / MIB),
        Figure::NotMeasured(reason) => Figure::NotMeasured(reason),
    }
}

fn sampled_over_whole_run(
    plan: &Plan,
    figures: &RunFigures,
    operation: Operation,
    bandwidth: &Figure<f64>,
) -> Figure<f64> {
    match sampled(plan, figures, operation, None) {
        Ok((mean, _)) => with_mean(bandwidth, mean),
        Err(reason) => Figure::missing(reason),
    }
}

/// Returns the mean of instantaneous bandwidths in MiB/s and the number of intervals, over the
/// samples around `phase`, or over all samples.
fn sampled(
    plan: &Plan,
    figures: &RunFigures,
    operation: Operation,
    phase: Option<&WorkloadPhase>,
) -> Result<(f64, u64), String> {
    if figures.probe.is_baseline() {
        return Err("the baseline attaches nothing".to_owned());
    }
    let Some(interval) = plan.study.design.sampling_interval_ms else {
        return Err("the study does not sample".to_owned());
    };
    let readings = readings(figures, operation, interval);
    // The range lasts from the last sample before the phase to the first one after it, with partial
    // sampling intervals.
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

/// Returns what sampling every `interval_ms` shows, from before the run to after it. The tracer
/// ends with the run, so it takes no sample before or after it. The first and the last reading
/// represent a permanent monitor. Outside the run, the workload's counters stay at the values read
/// at both ends.
pub(crate) fn readings(figures: &RunFigures, operation: Operation, interval_ms: u64) -> Vec<CounterReading> {
    let reading = |sample: &tracer_messages::Sample| CounterReading {
        at_ns: sample.monotonic_ns,
        bytes: bytes::of_key(figures, operation, sample).bytes,
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

/// Computes the geometric mean. If a figure is missing, the mean is, too, for the same reason.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares what program sets counted of a workload with what the workload reports.

use bpfassay_protocol::{
    Operation,
    message::{Interval, RunFigures, WorkloadPhase},
    operation::Totals,
    probe::Probe,
    program_set::ProgramEvent,
    tracer_messages::Sample,
};

use super::boot_coverage::less;
use bpfassay_results::{Difference, EventFigure, Figure, Span};

/// Derives a row per interval and event of the attached sets, if the event happened or should have.
pub(super) fn derive(figures: &RunFigures) -> Vec<EventFigure> {
    if figures.probe.probe != Probe::Programs {
        return Vec::new();
    }
    let of_set = || ProgramEvent::ALL.iter().copied().filter(|event| figures.probe.sets.has(event.set()));
    if figures.phases.is_empty() {
        let not_reported = || Figure::missing("the workload cannot be held between phases");
        return of_set()
            .filter_map(|event| row(figures, Span::WholeRun, event, not_reported(), &figures.whole))
            .collect();
    }
    let of_phase = |phase: &WorkloadPhase, event| {
        let span = Span::Phase { phase: phase.name.clone(), test: phase.test, repetition: phase.repetition };
        row(figures, span, event, reported(phase, event), &phase.interval)
    };
    figures.phases.iter().flat_map(|phase| of_set().filter_map(move |event| of_phase(phase, event))).collect()
}

/// Returns what the workload reports: its count of the event, or else its reads and writes.
fn reported(phase: &WorkloadPhase, event: ProgramEvent) -> Figure<Totals> {
    let operation = match event {
        ProgramEvent::FileRead => Some(Operation::Read),
        ProgramEvent::FileWrite => Some(Operation::Write),
        _ => None,
    };
    let of_calls = || phase.moved.get(&operation?);
    match phase.events.get(&event).or_else(of_calls) {
        Some(totals) => Figure::Value(*totals),
        None => Figure::missing("the workload does not count them"),
    }
}

/// Derives a row, or `None` if there is nothing to report. Switches always have a row, because the
/// workload waits at the end of every interval and so leaves the CPU.
fn row(
    figures: &RunFigures,
    span: Span,
    event: ProgramEvent,
    workload: Figure<Totals>,
    interval: &Interval,
) -> Option<EventFigure> {
    let sum = |sample: &Sample| {
        let own = sample.events.iter().filter(|row| row.cgroup == figures.cgroup && row.event == event);
        own.fold((Totals::default(), 0u64), |(mut totals, time), row| {
            totals += row.totals;
            (totals, time.wrapping_add(row.time_ns))
        })
    };
    let (counted, time_ns) = match (&interval.before.tracer, &interval.after.tracer) {
        (Some(before), Some(after)) => {
            let ((before, time_before), (after, time_after)) = (sum(before), sum(after));
            let back = after.calls < before.calls || after.bytes < before.bytes || time_after < time_before;
            match back {
                true => {
                    (Figure::missing("the set's counters went back"), Figure::missing("the set's counters went back"))
                }
                false => (Figure::Value(after - before), Figure::Value(time_after - time_before)),
            }
        }
        _ => {
            let reason = "the tracer was not read at both barriers";
            (Figure::missing(reason), Figure::missing(reason))
        }
    };
    let happened = |figure: &Figure<Totals>| figure.value().is_some_and(|totals| totals.calls > 0);
    if !(happened(&workload) || happened(&counted) || event == ProgramEvent::Switch || counted.value().is_none()) {
        return None;
    }
    let difference = match (&counted, &workload) {
        (Figure::NotMeasured(reason), _) | (_, Figure::NotMeasured(reason)) => Figure::missing(reason.as_str()),
        (Figure::Value(counted), Figure::Value(reported)) => Figure::Value(Difference {
            bytes: less(counted.bytes, reported.bytes),
            calls: Some(less(counted.calls, reported.calls)),
            errors: less(counted.errors, reported.errors),
        }),
    };
    Some(EventFigure { span, event, workload, counted, time_ns, difference })
}

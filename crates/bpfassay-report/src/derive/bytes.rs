// SPDX-License-Identifier: MIT OR Apache-2.0
//! Byte error: the bytes that the tracer counted minus those that the workload moved.

use bpfassay_protocol::{
    Operation,
    message::{Interval, MountFacts, MountStats, Reading, RunFigures, WorkloadPhase},
    operation::{Direction, Totals},
    probe::Probe,
    tracer_messages::{self, CounterRow, Device},
};
use bpfassay_study::{Interface, PhaseReport};

use bpfassay_results::{ByteFigure, Figure, MovedSource, Span};

/// The workload's reports about itself, apart from what its calls moved.
pub(super) struct WorkloadReports<'a> {
    /// The I/O interface of IOR; `None` for another program.
    pub(super) interface: Option<Interface>,
    /// Whether another process moves bytes on the same mount, which mountstats cannot separate.
    pub(super) neighbour: bool,
    /// Tells why the summary reports fewer bytes of an operation than the workload moves, if it
    /// does.
    pub(super) not_reported: &'a dyn Fn(Operation) -> Option<&'static str>,
    pub(super) reported: Result<&'a [PhaseReport], &'a str>,
}

/// The operations by which IOR moves data.
pub(super) const DATA: [Operation; 2] = [Operation::Read, Operation::Write];

/// Derives all byte figures of a run: per phase if the engine has barriers, else over the whole
/// run.
pub(super) fn derive(figures: &RunFigures, workload: &WorkloadReports<'_>) -> Vec<ByteFigure> {
    if figures.phases.is_empty() {
        return DATA
            .into_iter()
            .map(|operation| {
                let bytes = from_summary(workload, operation, |_| true);
                let moved = (bytes, Figure::missing("IOR's summary does not report calls"), MovedSource::Summary);
                figure(figures, workload, Span::WholeRun, operation, moved, (&figures.whole, None))
            })
            .collect();
    }
    let of_phase = |phase: &WorkloadPhase, operation: Operation| {
        let span = Span::Phase { phase: phase.name.clone(), test: phase.test, repetition: phase.repetition };
        let moved = match workload.interface {
            // No system call moves these bytes, so the workload does not count them.
            Some(Interface::Mmap) => {
                let timed = DATA.iter().any(|operation| operation.name() == phase.name);
                let bytes = if timed {
                    from_summary(workload, operation, |reported| is_of(phase, reported))
                } else {
                    Figure::missing("IOR's summary does not report the bytes of checks")
                };
                (bytes, Figure::missing("no calls move mapped pages"), MovedSource::Summary)
            }
            Some(Interface::Posix | Interface::Mpiio) | None => {
                let totals = phase.moved.get(&operation).copied().unwrap_or_default();
                (Figure::Value(totals.bytes), Figure::Value(totals.calls), MovedSource::Calls)
            }
        };
        figure(figures, workload, span, operation, moved, (&phase.interval, phase.mount.as_ref()))
    };
    let of_phases = figures.phases.iter().flat_map(|phase| {
        let others = phase.moved.keys().copied().filter(|operation| !DATA.contains(operation));
        DATA.into_iter().chain(others).map(move |operation| of_phase(phase, operation))
    });
    of_phases.chain(without_barriers(figures, workload)).collect()
}

/// Whether the report `reported` describes `phase`.
pub(super) fn is_of(phase: &WorkloadPhase, reported: &PhaseReport) -> bool {
    *phase.name == *reported.name && (phase.test, phase.repetition) == (reported.test, reported.repetition)
}

/// Returns the phases that the summary reports without known barriers: the bytes that were counted
/// in them are not known.
fn without_barriers(figures: &RunFigures, workload: &WorkloadReports<'_>) -> impl Iterator<Item = ByteFigure> {
    let is_known = |one: &PhaseReport| {
        // IOR reports a read with comparison (-R) like any other read.
        let compared = PhaseReport { name: "readcheck".parse().unwrap_or_default(), ..*one };
        let is_same = |phase: &WorkloadPhase| is_of(phase, one) || &*one.name == "read" && is_of(phase, &compared);
        figures.phases.iter().any(is_same)
    };
    let reported = workload.reported.unwrap_or_default().iter().filter(move |one| !is_known(one));
    reported.map(|one| {
        let why = "no barriers of this phase were reported";
        ByteFigure {
            span: Span::Phase { phase: one.name.to_string(), test: one.test, repetition: one.repetition },
            operation: one.operation,
            workload: one.bytes.map_or_else(|| Figure::missing(why), Figure::Value),
            moved_source: MovedSource::Summary,
            traced: Figure::missing(why),
            mountstats: Figure::missing(why),
            error: Figure::missing(why),
            call_error: Figure::missing(why),
            mountstats_error: Figure::missing(why),
        }
    })
}

/// Derives the byte figures of a run of a program that reports how many bytes it `moved`.
pub(super) fn reported(figures: &RunFigures, moved: impl Iterator<Item = (Operation, Figure<u64>)>) -> Vec<ByteFigure> {
    let workload = WorkloadReports {
        interface: None,
        neighbour: false,
        not_reported: &|_| None,
        reported: Err("the workload is not IOR"),
    };
    moved
        .map(|(operation, bytes)| {
            let calls = Figure::missing("the workload does not report calls");
            let moved = (bytes, calls, MovedSource::Summary);
            figure(figures, &workload, Span::WholeRun, operation, moved, (&figures.whole, None))
        })
        .collect()
}

/// Sums the bytes that IOR's summary lists for `operation`.
fn from_summary(
    workload: &WorkloadReports<'_>,
    operation: Operation,
    keep: impl Fn(&PhaseReport) -> bool,
) -> Figure<u64> {
    let reported = match workload.reported {
        Ok(reported) => reported,
        Err(reason) => return Figure::missing(reason),
    };
    if let Some(reason) = (workload.not_reported)(operation) {
        return Figure::missing(reason);
    }
    let mut sum = 0u64;
    for one in reported.iter().filter(|one| one.operation == operation && keep(one)) {
        let Some(bytes) = one.bytes else {
            return Figure::missing("the rounded figures of IOR's summary do not settle the number of bytes");
        };
        let Some(more) = sum.checked_add(bytes) else {
            return Figure::missing("IOR's summary reports more bytes than fit into 64 bits");
        };
        sum = more;
    }
    Figure::Value(sum)
}

fn figure(
    figures: &RunFigures,
    workload: &WorkloadReports<'_>,
    span: Span,
    operation: Operation,
    (moved, calls, moved_source): (Figure<u64>, Figure<u64>, MovedSource),
    (interval, mount): (&Interval, Option<&MountFacts>),
) -> ByteFigure {
    let counted = match mount {
        None => counted_between(figures, operation, interval),
        Some(mount) => counted_on(figures, operation, interval, mount),
    };
    let traced = counted.clone().map(|totals| totals.bytes);
    let mountstats = mountstats(operation, interval);
    ByteFigure {
        span,
        operation,
        error: difference(&traced, &moved),
        call_error: difference(&counted.map(|totals| totals.calls), &calls),
        mountstats_error: match workload.interface {
            _ if mount.is_some() => Figure::missing("mountstats are read of the file system under test alone"),
            _ if workload.neighbour => Figure::missing("mountstats count what the neighbour moves, too"),
            Some(Interface::Mmap) => {
                Figure::missing("mountstats count what system calls move, and none moves mapped pages")
            }
            Some(Interface::Posix | Interface::Mpiio) | None => difference(&mountstats, &moved),
        },
        workload: moved,
        moved_source,
        traced,
        mountstats,
    }
}

/// Returns the bytes that the tracer counted for the workload's key between two readings.
pub(super) fn traced(figures: &RunFigures, operation: Operation, interval: &Interval) -> Figure<u64> {
    counted_between(figures, operation, interval).map(|totals| totals.bytes)
}

/// Returns what the tracer counted for the workload's key between two readings.
pub(super) fn counted_between(figures: &RunFigures, operation: Operation, interval: &Interval) -> Figure<Totals> {
    counted_by(figures, operation, interval, |reading| counted(figures, operation, reading))
}

/// Returns what the tracer counted for the workload on another mount than the file system under
/// test. Several mounts can belong to one file system and have its device.
fn counted_on(figures: &RunFigures, operation: Operation, interval: &Interval, mount: &MountFacts) -> Figure<Totals> {
    if !figures.probe.is_baseline() && !figures.probe.probe.distinguishes_mounts() {
        return Figure::missing("the probe does not distinguish mounts");
    }
    let is_own = |row: &&CounterRow| row.cgroup == figures.cgroup && row.device == mount.device;
    let tells_ids = |reading: &Reading| {
        let rows = reading.tracer.iter().flat_map(|sample| &sample.rows);
        rows.filter(is_own).all(|row| row.mount != 0)
    };
    if !tells_ids(&interval.before) || !tells_ids(&interval.after) {
        return Figure::missing("the probe does not distinguish mounts of one device");
    }
    counted_by(figures, operation, interval, |reading| {
        let rows = &reading.tracer.as_ref()?.rows;
        let of_mount = tracer_messages::sum(rows, |row| is_own(&row) && row.mount == mount.id);
        Some(of_mount.get(&operation).copied().unwrap_or_default())
    })
}

fn counted_by(
    figures: &RunFigures,
    operation: Operation,
    interval: &Interval,
    counted: impl Fn(&Reading) -> Option<Totals>,
) -> Figure<Totals> {
    if figures.probe.is_baseline() {
        return Figure::missing("the baseline attaches nothing");
    }
    if figures.probe.probe == Probe::Programs {
        return Figure::missing("program sets count in a table of their own");
    }
    match (counted(&interval.before), counted(&interval.after)) {
        (Some(before), Some(after)) => {
            if after.bytes < before.bytes || after.calls < before.calls {
                return Figure::missing(format!("the tracer's counter of {operation} went back"));
            }
            Figure::Value(after - before)
        }
        _ => Figure::missing("the tracer was not read at both barriers"),
    }
}

fn counted(figures: &RunFigures, operation: Operation, reading: &Reading) -> Option<Totals> {
    Some(of_key(figures, operation, reading.tracer.as_ref()?))
}

/// Sums the counters of the workload's key in one sample. Calls that move no data can lack a
/// device: calls by path that failed before there was a file, and all calls for a probe that does
/// not follow paths. In the workload's cgroup and between its barriers, they belong to the
/// workload.
pub(super) fn of_key(figures: &RunFigures, operation: Operation, sample: &tracer_messages::Sample) -> Totals {
    let anywhere = !figures.probe.probe.distinguishes_mounts();
    let is_there = |device| {
        anywhere || device == figures.mount.device || device == Device::UNKNOWN && operation.direction().is_none()
    };
    tracer_messages::sum(&sample.rows, |row| row.cgroup == figures.cgroup && is_there(row.device))
        .get(&operation)
        .copied()
        .unwrap_or_default()
}

pub(super) fn mountstats(operation: Operation, interval: &Interval) -> Figure<u64> {
    let bytes = |stats: &MountStats| match operation.direction()? {
        Direction::In => stats.normal_read.checked_add(stats.direct_read),
        Direction::Out => stats.normal_written.checked_add(stats.direct_written),
    };
    match (&interval.before.mountstats, &interval.after.mountstats) {
        (Some(before), Some(after)) => {
            match bytes(after).zip(bytes(before)).and_then(|(after, before)| after.checked_sub(before)) {
                Some(bytes) => Figure::Value(bytes),
                None => Figure::missing("the byte counters of mountstats went back"),
            }
        }
        _ => Figure::missing("the mount has no mountstats"),
    }
}

/// Computes `left - right` exactly.
fn difference(left: &Figure<u64>, right: &Figure<u64>) -> Figure<i64> {
    match (left, right) {
        (Figure::NotMeasured(reason), _) | (_, Figure::NotMeasured(reason)) => Figure::missing(reason.as_str()),
        (Figure::Value(left), Figure::Value(right)) => i64::try_from(i128::from(*left) - i128::from(*right))
            .map_or_else(|_| Figure::missing("the difference does not fit into 64 bits"), Figure::Value),
    }
}

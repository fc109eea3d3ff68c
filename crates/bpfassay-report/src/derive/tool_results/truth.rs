// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ground truth of a tool's run, from the counts of the reference tracer.
//!
//! The truth has bounds. The reference tracer is read before and after the tool's report. A correct
//! tool can count what the guest's agent does for both, or leave it out. A figure is a fault of the
//! tool only outside these bounds.

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_protocol::{
    Operation,
    message::{Interval, MountFacts, RunFigures, WorkloadPhase},
    operation::{Totals, Variant},
    probe::{ByteMeaning, MapLayout},
    program_set::ProgramEvent,
    tool_job::ToolFigures,
    tracer_messages::{CounterRow, Device, Sample, Task},
};
use bpfassay_tool::{
    CountedUnit, Report, Whose,
    finding::{CallShare, ProcessNames, Truth},
};

use super::{
    cgroups::{ROOT, SumsByCgroup},
    is_of,
};

/// Name of the processes of bundled workloads: the name of their program.
const WORKLOAD: &str = "ior";

/// The mount point of the cgroup file system in guests.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Returns what happened between the last report before the workload and the first report after it.
/// If one of them is missing, the range ends at the reading next to the workload; others may have
/// worked between that reading and the workload.
pub(super) fn of(report: &Report, seen: &ToolFigures, figures: &RunFigures, cgroups: &SumsByCgroup) -> Option<Truth> {
    let (before, after) = (&figures.whole.before, &figures.whole.after);
    let reported = || {
        let with_reference = seen.output.iter().filter(|piece| is_of(report, piece));
        with_reference.filter_map(|piece| Some((piece.monotonic_ns, piece.reference.as_deref()?)))
    };
    let first = reported().take_while(|(at_ns, _)| *at_ns <= before.monotonic_ns).last();
    let last = reported().filter(|(at_ns, _)| *at_ns >= after.monotonic_ns).last();
    let is_whole_system = first.is_some() && last.is_some();
    let (from_ns, start) = match first {
        Some((at_ns, reference)) => (at_ns, &reference.after),
        None => (before.monotonic_ns, before.tracer.as_ref()?),
    };
    let (to_ns, end) = match last {
        Some((at_ns, reference)) => (at_ns, &reference.after),
        None => (u64::MAX, after.tracer.as_ref()?),
    };
    let units = units_of(figures.probe.probe.counts()?);
    let counts = |row: &CounterRow| !report.excludes_itself || row.cgroup != seen.cgroup;
    let is_others = |row: &CounterRow| may_leave_out(report, seen, row);
    let between = |start, end, counts: &dyn Fn(&CounterRow) -> bool| shares(start, end, figures, cgroups, counts);
    let mut optional = between(start, end, &|row| counts(row) && is_others(row));
    let is_copy = |row: &CounterRow| {
        let is_named = |task: &Task| !seen.agent.is_empty() && task.name == seen.agent;
        is_started(figures, row.cgroup) && row.task.as_ref().is_some_and(is_named)
    };
    let copies = between(start, end, &|row| counts(row) && is_copy(row) && !is_others(row));
    // Calls during a report may be counted in it or not.
    if let Some((_, reference)) = last {
        optional.extend(between(&reference.before, end, &|row| counts(row) && !is_others(row)));
    }
    let earlier = first.map(|(_, reference)| between(&reference.before, start, &counts)).unwrap_or_default();
    let mut shares = between(start, end, &counts);
    shares.extend(of_network(figures, cgroups));
    let (mut phases, mut phases_ns) = (Vec::new(), 0_u64);
    for phase in &figures.phases {
        let Interval { before, after } = &phase.interval;
        if let (Some(start), Some(end)) = (&before.tracer, &after.tracer) {
            phases.push((name_of(phase), between(start, end, &counts)));
            phases_ns = phases_ns.saturating_add(after.monotonic_ns.saturating_sub(before.monotonic_ns));
        }
    }
    let threads: BTreeSet<&Task> = figures.phases.iter().flat_map(|phase| phase.tasks.iter().flatten()).collect();
    let threads = threads.into_iter().map(ProcessNames::from).collect();
    // Agents of running systems report where the cgroups are, and agents of guests do not.
    let is_shared = !seen.cgroups.is_empty();
    Some(Truth {
        from_ns,
        to_ns,
        shares,
        optional,
        copies,
        earlier,
        phases,
        phases_ns,
        threads,
        is_whole_system,
        is_shared,
        units,
    })
}

/// Returns the units that a probe counts: at entry, it sees what calls request, but not what they
/// return.
fn units_of(meaning: ByteMeaning) -> Vec<CountedUnit> {
    match meaning {
        ByteMeaning::Requested => vec![CountedUnit::BytesRequested],
        ByteMeaning::Returned => {
            CountedUnit::ALL.into_iter().filter(|&unit| unit != CountedUnit::BytesRequested).collect()
        }
    }
}

/// Whether a tool can count `row` or leave it out: what the agent, kernel threads and the tool
/// itself do, and what its file declares as left out.
fn may_leave_out(report: &Report, seen: &ToolFigures, row: &CounterRow) -> bool {
    let path = row.path.as_deref();
    let is_left_out = path.is_some_and(|path| report.leaves_out.iter().any(|place| is_below(path, place)));
    row.cgroup == ROOT || row.cgroup == seen.cgroup || is_left_out || is_of_agent(row)
}

/// Returns the names of cgroups and processes of which the reference tracer had counted nothing
/// before the workload began, so no tool can have counted them either. Returns none if figures
/// include others that existed before, because what a tool had reported of those is unknown.
/// Returns no processes if one of them existed before.
pub(super) fn newcomers(
    truth: &Truth,
    figures: &RunFigures,
    cgroups: &SumsByCgroup,
) -> BTreeMap<Whose, BTreeSet<String>> {
    let Some(before) = &figures.whole.before.tracer else { return BTreeMap::new() };
    let were_there: BTreeSet<u64> = before.rows.iter().filter(|row| !is_of_agent(row)).map(|row| row.cgroup).collect();
    let known: Vec<Vec<String>> = were_there.into_iter().map(|cgroup| cgroups.names(cgroup)).collect();
    let processes: BTreeSet<String> = before
        .rows
        .iter()
        .filter_map(|row| row.task.as_ref())
        .flat_map(|task| names_of(&ProcessNames::from(task)))
        .collect();
    let is_others = |share: &CallShare| truth.optional.contains(share) || truth.copies.contains(share);
    let count = || truth.shares.iter().filter(|share| !is_others(share));
    if count().any(|share| known.contains(&share.cgroup)) {
        return BTreeMap::new();
    }
    let of_cgroups = count().flat_map(|share| share.cgroup.iter().cloned()).collect();
    let of_processes: BTreeSet<String> = count().flat_map(|share| names_of(&share.process)).collect();
    let were_there = !of_processes.is_disjoint(&processes);
    let of_processes = (!were_there).then_some((Whose::Process, of_processes));
    std::iter::once((Whose::Cgroup, of_cgroups)).chain(of_processes).collect()
}

fn names_of(process: &ProcessNames) -> impl Iterator<Item = String> + use<> {
    let ProcessNames { id, thread, name } = process.clone();
    [id, thread, name].into_iter().flatten()
}

/// Returns what the workload sent and received, by its own count. How much it requested is not
/// known.
fn of_network(figures: &RunFigures, cgroups: &SumsByCgroup) -> impl Iterator<Item = CallShare> {
    let of = move |operation: Operation, event: ProgramEvent| {
        let mut shares: Vec<CallShare> = Vec::new();
        for phase in &figures.phases {
            let Some(totals) = phase.events.get(&event).filter(|totals| **totals != Totals::default()) else {
                continue;
            };
            let share = CallShare {
                cgroup: cgroups.names(figures.cgroup),
                mount: Vec::new(),
                process: of_phase(figures, phase),
                is_file: false,
                file_system: None,
                operation,
                variant: None,
                calls: totals.calls,
                errors: Some(totals.errors),
                bytes_returned: Some(totals.bytes),
                bytes_requested: None,
            };
            shares.push(share);
        }
        shares
    };
    [(Operation::Send, ProgramEvent::TcpSend), (Operation::Receive, ProgramEvent::TcpReceive)]
        .into_iter()
        .flat_map(move |(operation, event)| of(operation, event))
}

/// Returns the process of a workload with phases whose threads are not recorded. All workloads with
/// phases are bundled. If other threads are recorded, it can be any process.
fn of_workload(figures: &RunFigures) -> ProcessNames {
    let is_named = !figures.phases.is_empty() && figures.probe.map != MapLayout::Threads;
    ProcessNames { name: is_named.then(|| WORKLOAD.to_owned()).into_iter().collect(), ..ProcessNames::default() }
}

/// Returns the process whose calls the workload counts in `phase`: what all its threads have in
/// common.
pub(super) fn of_phase(figures: &RunFigures, phase: &WorkloadPhase) -> ProcessNames {
    let Some(tasks) = &phase.tasks else { return of_workload(figures) };
    let all: Vec<ProcessNames> = tasks.iter().map(ProcessNames::from).collect();
    let common = |pick: fn(&ProcessNames) -> &Vec<String>| {
        let first = all.first().map(pick)?;
        all.iter().all(|one| pick(one) == first).then(|| first.clone())
    };
    ProcessNames {
        id: common(|process| &process.id).unwrap_or_default(),
        thread: common(|process| &process.thread).unwrap_or_default(),
        name: common(|process| &process.name).unwrap_or_default(),
    }
}

/// Returns the process whose calls of `operation` the workload counts in `phase`. If the reference
/// tracer saw only one thread of the workload make such calls in the meantime, that thread
/// determines the process; otherwise [`of_phase`] does.
pub(super) fn of_operation(
    figures: &RunFigures,
    cgroups: &SumsByCgroup,
    phase: &WorkloadPhase,
    operation: Operation,
) -> ProcessNames {
    let readings = phase.interval.before.tracer.as_ref().zip(phase.interval.after.tracer.as_ref());
    let is_of_workload = |row: &CounterRow| row.cgroup == figures.cgroup && row.operation == operation;
    let done = readings.map(|(before, after)| shares(before, after, figures, cgroups, &is_of_workload));
    let mut processes: Vec<ProcessNames> = done.into_iter().flatten().map(|share| share.process).collect();
    processes.dedup();
    match processes.as_slice() {
        [one] if *one != ProcessNames::default() => one.clone(),
        _ => of_phase(figures, phase),
    }
}

/// Formats the name of a phase: `write`, or `write (test 1, repetition 2)`.
fn name_of(phase: &WorkloadPhase) -> String {
    match (phase.test, phase.repetition) {
        (0, 0) => phase.name.clone(),
        (test, repetition) => format!("{} (test {test}, repetition {repetition})", phase.name),
    }
}

/// Whether the mount at `path` is the one at `place`, or lies below it.
fn is_below(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether the agent started the processes of `cgroup`: those of the workload or its bystander.
fn is_started(figures: &RunFigures, cgroup: u64) -> bool {
    let of_bystander = figures.bystander.as_ref().map(|bystander| bystander.cgroup);
    cgroup == figures.cgroup || of_bystander == Some(cgroup)
}

/// Whether the row is the agent's own entry into a cgroup. A process that enters the workload's
/// cgroup is a copy of the agent, with the agent's name, until it executes its program.
fn is_of_agent(row: &CounterRow) -> bool {
    row.path.as_deref().is_some_and(|path| path.starts_with(CGROUPS))
}

type ShareKey<'r> = (u64, Device, u64, Operation, Option<Variant>, Option<&'r Task>);

/// Returns what happened between two samples, from the rows that count.
fn shares(
    start: &Sample,
    end: &Sample,
    figures: &RunFigures,
    cgroups: &SumsByCgroup,
    counts: &dyn Fn(&CounterRow) -> bool,
) -> Vec<CallShare> {
    fn key(row: &CounterRow) -> ShareKey<'_> {
        (row.cgroup, row.device, row.mount, row.operation, row.variant, row.task.as_ref())
    }
    let returned = figures.probe.probe.counts() == Some(ByteMeaning::Returned);
    let devices: BTreeSet<u64> = end.rows.iter().flat_map(|row| numbers(row.device)).collect();
    let before: BTreeMap<ShareKey<'_>, Totals> = start.rows.iter().map(|row| (key(row), row.totals)).collect();
    let phases = figures.phases.iter().filter_map(|phase| phase.mount.as_ref());
    let of_bystander = figures.bystander.iter().flat_map(|bystander| &bystander.namespace);
    let mounts: Vec<&MountFacts> = figures.namespace.iter().chain(phases).chain(of_bystander).collect();
    let is_at = |mount: &MountFacts, row: &CounterRow| (mount.id, mount.device) == (row.mount, row.device);
    // A mount of the workload's own namespace exists nowhere else. Pipes and sockets belong to no
    // namespace.
    let in_namespace = |row: &CounterRow| mounts.iter().find(|mount| is_at(mount, row)).map(|mount| &*mount.path);
    // All mounts of a device have the same file system.
    let file_system = |row: &CounterRow| {
        let mut known = mounts.iter().copied().chain([&figures.mount]);
        known.find(|mount| mount.device == row.device).map(|mount| mount.file_system.clone())
    };
    let share = |row: &CounterRow| {
        let path = row.path.as_deref().or_else(|| in_namespace(row));
        let totals = row.totals - before.get(&key(row)).copied().unwrap_or_default();
        // Reference tracers that do not distinguish threads do not tell who else is in the
        // workload's cgroup, unless the workload is bundled. The bystander runs the same program.
        let is_workload = is_started(figures, row.cgroup) && !is_of_agent(row);
        let unrecorded = || if is_workload { of_workload(figures) } else { ProcessNames::default() };
        (totals != Totals::default()).then(|| CallShare {
            cgroup: cgroups.names(row.cgroup),
            mount: mount_names(path, row.device, row.mount, &devices),
            process: row.task.as_ref().map_or_else(unrecorded, ProcessNames::from),
            is_file: path.is_some(),
            file_system: file_system(row),
            operation: row.operation,
            variant: row.variant,
            calls: totals.calls,
            errors: returned.then_some(totals.errors),
            bytes_returned: returned.then_some(totals.bytes),
            bytes_requested: (!returned).then_some(totals.bytes),
        })
    };
    end.rows.iter().filter(|row| counts(row)).filter_map(share).collect()
}

/// Returns the names that a tool can use for a mount, the mount's id last; none without a mount. An
/// id that equals the number of one of `devices` is no name, because it means the device.
pub(super) fn mount_names(path: Option<&str>, device: Device, id: u64, devices: &BTreeSet<u64>) -> Vec<String> {
    if device == Device::UNKNOWN {
        return Vec::new();
    }
    let mut names: Vec<String> = path.map(str::to_owned).into_iter().collect();
    names.push(format!("{}:{}", device.major, device.minor));
    names.extend(numbers(device).map(|number| number.to_string()));
    if !devices.contains(&id) {
        names.push(id.to_string());
    }
    names
}

/// Returns the kernel's own number of a device (`dev_t`), and the one that `stat` returns
/// (`new_encode_dev`, include/linux/kdev_t.h, 6.12).
fn numbers(Device { major, minor }: Device) -> [u64; 2] {
    let (major, minor) = (u64::from(major), u64::from(minor));
    [major << 20 | minor, (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)]
}

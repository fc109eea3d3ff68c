// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes one run: fresh state, tracer, workload with its barriers, readings, clean-up.

use std::{
    io::Write,
    os::fd::AsFd,
    process::ExitStatus,
    time::{Duration, Instant},
};

use bpfassay_protocol::{
    control::{MAX_LINE, PhaseEvent},
    job::{MAX_OUTPUT, RunSpec},
    message::{GuestMessage, Interval, MountFacts, Phase, Reading, RunFigures, RunOutcome, WarmUp},
    run_name,
    symbols::UserCode,
    tool::Tool,
    tracer::{Refusal, Sample},
    with_causes,
};
use rustix::{
    event::{PollFd, PollFlags},
    process::Pid,
};

use crate::{
    cgroup::Cgroup,
    children::{Children, ended_how},
    conditions::{self, Conditions},
    environment::Environment,
    error::{Error, Result},
    figures,
    lines::{Lines, Taken},
    link::{Link, wait_readable},
    marker,
    meetings::Meetings,
    nfs::remove_tree,
    output_tail,
    phases::Phases,
    proc::{activity::Activity, idle, mountinfo, mountstats},
    soundness::Snapshot,
    steps::monotonic_ns,
    stop, system, tool,
    tracer::{self, Started, Tracer, pool::Pool},
    user_code::{self, Mapping},
    workload::{self, Output, RunPaths, Running},
};

/// How long a killed process may take to be gone.
const KILLING: Duration = Duration::from_secs(30);

/// Executes `specs` one after the other, and reports the outcome of each. After each with a tool the system must be as before the
/// first, otherwise no other begins: the message that reports this is returned. `conditions` hold when phases begin. A tool that was refused
/// is not started again: its runs to come end with that refusal.
///
/// # Errors
/// As [`execute`].
pub(crate) fn execute_all(
    specs: &[RunSpec],
    environment: &Environment,
    conditions: &mut Conditions,
    link: &Link,
    children: &mut Children,
) -> Result<Option<GuestMessage>> {
    // Where no tool ran, no tool is to blame.
    let has_tool = |spec: &RunSpec| spec.tool.is_some() || !spec.probe.is_baseline();
    let snapshot = specs.iter().any(has_tool).then(|| Snapshot::take(environment));
    let mut tracers = Pool::new(specs, environment);
    let mut refused = RefusedTools::default();
    let mut execute_each = || {
        for spec in specs {
            stop::check()?;
            if let Some(refusal) = refused.of(spec) {
                report(&spec.id, RunOutcome::Refused(refusal.clone()), Vec::new(), link)?;
                continue;
            }
            let refusal = execute(spec, environment, conditions, link, children, &mut tracers)?;
            refused.take(spec, refusal);
            let Some(snapshot) = snapshot.as_ref().filter(|_| has_tool(spec)) else { continue };
            let differences = snapshot.differences(&tracers.kept(), environment, children)?;
            if !differences.is_empty() {
                return Ok(Some(GuestMessage::Unsound { run: spec.id.clone(), differences }));
            }
        }
        Ok(None)
    };
    let executed = execute_each();
    // Whatever the outcomes of the runs.
    for note in tracers.end(children)? {
        link.log(note)?;
    }
    executed
}

/// The tools that were refused so far.
#[derive(Default)]
struct RefusedTools<'a>(Vec<(&'a Tool, Refusal)>);

impl<'a> RefusedTools<'a> {
    /// Why the tool of `spec` was refused in an earlier run.
    fn of(&self, spec: &RunSpec) -> Option<&Refusal> {
        let tool = spec.tool.as_ref()?;
        self.0.iter().find(|(known, _)| *known == tool).map(|(_, refusal)| refusal)
    }

    /// Records a run of `spec`. A refusal that names no run is not one of its tool: the reference tracer was refused.
    fn take(&mut self, spec: &'a RunSpec, refusal: Option<Refusal>) {
        self.0.extend(spec.tool.as_ref().zip(refusal.filter(|refusal| refusal.run.is_some())));
    }
}

/// Executes `spec` at `environment` and reports its outcome; a refusal is returned, too. `conditions` hold when phases begin.
///
/// # Errors
/// Only where nothing can be sent to the host; everything else is an outcome of the run.
fn execute(
    spec: &RunSpec,
    environment: &Environment,
    conditions: &mut Conditions,
    link: &Link,
    children: &mut Children,
    tracers: &mut Pool,
) -> Result<Option<Refusal>> {
    let mut notes = Vec::new();
    let mut paths = RunPaths::new(environment, &spec.id);
    let mut meetings = Meetings::of(environment.node, link, &spec.id);
    let mut durations = Vec::new();
    let mut outcome = loop {
        let announced = match (&spec.until_steady, durations.as_slice()) {
            (None, _) => Announced::All,
            (Some(_), []) => Announced::Beginning,
            (Some(_), _) => Announced::Nothing,
        };
        let mut outcome = attempt(
            spec,
            announced,
            conditions,
            (&mut paths, &mut meetings),
            link,
            (&mut *children, &mut *tracers),
            &mut notes,
        )
        // A figure from a directory that somebody replaced meanwhile is no figure of this file system.
        .and_then(|outcome| environment.test_dir.check().map(|()| outcome))
        .unwrap_or_else(|error| RunOutcome::Failed { message: with_causes(&error) });
        let (Some(rule), RunOutcome::Measured(figures)) = (&spec.until_steady, &mut outcome) else { break outcome };
        durations.push(figures.durations_ns());
        if let Some(is_steady) = rule.ends(&durations) {
            figures.warm_up = Some(WarmUp { is_steady, durations_ns: durations });
            break outcome;
        }
        stop::check()?;
    };
    if let Err(error) = paths.remove() {
        // The figures are valid; the next run prepares its own fresh state.
        notes.push(with_causes(&error));
    }
    // What the first node has removed is gone for all before any compares its system with what it was.
    if let (RunOutcome::Measured(_), Err(error)) = (&outcome, meetings.meet()) {
        outcome = RunOutcome::Failed { message: with_causes(&error) };
    }
    // Nothing is known about a run that was killed to stop early.
    stop::check()?;
    let refusal = match &outcome {
        RunOutcome::Refused(refusal) => Some(refusal.clone()),
        RunOutcome::Measured(_) | RunOutcome::Failed { .. } => None,
    };
    report(&spec.id, outcome, notes, link)?;
    Ok(refusal)
}

/// Sends what came of `run`, and notes on it before.
fn report(run: &str, outcome: RunOutcome, notes: Vec<String>, link: &Link) -> Result<()> {
    let (frame, left_out) = match figures::report(run, outcome, bpfassay_protocol::frame::MAX_PAYLOAD) {
        Ok(report) => report,
        Err(error) => {
            let message = format!("the figures of this run do not fit into a message: {}", with_causes(&error));
            figures::report(run, RunOutcome::Failed { message }, usize::MAX)?
        }
    };
    for note in notes.into_iter().chain(left_out) {
        link.log(format!("run {run}: {note}"))?;
    }
    link.send_frame(&frame)
}

/// What the host receives of the phases of a run. Each is announced once, whatever is attached in it and however often it is repeated: the order is part
/// of the protocol ([`GuestMessage`]).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Announced {
    All,
    /// What a repeat with more to follow sends: all but the last.
    Beginning,
    Nothing,
}

impl Announced {
    fn phase(self, link: &Link, phase: Phase, run: &str) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Beginning if phase == Phase::TearDown => Ok(()),
            Self::All | Self::Beginning => link.phase(phase, Some(run)),
        }
    }
}

fn attempt(
    spec: &RunSpec,
    announced: Announced,
    conditions: &mut Conditions,
    (paths, meetings): (&mut RunPaths<'_>, &mut Meetings<'_>),
    link: &Link,
    (children, tracers): (&mut Children, &mut Pool),
    notes: &mut Vec<String>,
) -> Result<RunOutcome> {
    let environment = paths.environment;
    environment.test_dir.check()?;
    make_fresh(paths, meetings)?;
    let paths = &*paths;
    let asks_for_features = spec.workload.features && spec.probe.is_baseline();
    if !spec.probe.is_baseline() || asks_for_features || spec.tool.is_some() {
        announced.phase(link, Phase::Attach, &spec.id)?;
    }
    let started = if spec.probe.is_baseline() {
        None
    } else {
        match tracers.start(spec, environment, || paths.output("tracer"), children, notes)? {
            Started::Attached(tracer) => Some(*tracer),
            Started::Refused(refusal) => return Ok(RunOutcome::Refused(refusal)),
        }
    };
    let features = match asks_for_features {
        true => tracer::features(environment, paths.output("features")?, children)?,
        false => Vec::new(),
    };
    let tool = match &spec.tool {
        None => None,
        Some(tool) => {
            let name = run_name::of_tool(&spec.id);
            let tool = match tool::Running::start(tool, (environment, &name), spec.bpf_stats, children) {
                Ok(tool::Started::Ready(running)) => Ok(*running),
                Ok(tool::Started::Refused(refusal)) => {
                    Err(Ok(RunOutcome::Refused(Refusal { run: Some(spec.id.clone()), ..refusal })))
                }
                Err(error) => Err(Err(error)),
            };
            match tool {
                Ok(running) => Some(running),
                Err(outcome) => {
                    // Nor does its reference tracer see anything.
                    started.map(|tracer| tracers.stop(tracer, children)).transpose()?;
                    return outcome;
                }
            }
        }
    };
    let mut run = Run {
        environment,
        announced,
        conditions,
        link,
        meetings,
        children,
        tracer: started,
        tool,
        phases: Phases::default(),
        workload_code: Vec::new(),
    };
    let measured = run.measure(spec, paths);
    let Run { mut tracer, tool, phases, children, .. } = run;
    let is_sent = announced.phase(link, Phase::TearDown, &spec.id);
    // The tracer is detached whatever the workload's outcome, and the tool ended, both before the first error is reported; the tool first, so that
    // its last output has a reference.
    let stopped = tool.map(|tool| tool.stop(children, || reference(&mut tracer))).transpose();
    let remains = tracer.map(|tracer| tracers.stop(tracer, children)).transpose();
    is_sent?;
    let measured = measured?;
    let (tool, tool_statistics) = stopped?.unzip();
    let phases = phases.finish().map_err(misspoke)?;
    let (tracer, samples, ended) = match remains? {
        Some(remains) => {
            notes.extend(remains.notes);
            (Some(remains.attached), remains.samples, remains.ended)
        }
        None => (None, Vec::new(), None),
    };
    let summary = match measured.output {
        Some(text) => text,
        None => paths.read_summary()?,
    };
    Ok(RunOutcome::Measured(Box::new(RunFigures {
        probe: spec.probe,
        engine: spec.workload.engine,
        summary,
        features,
        cgroup: measured.cgroup,
        mount: measured.mount,
        namespace: measured.namespace,
        phases,
        whole: measured.whole,
        tracer,
        ended,
        tool_statistics: tool_statistics.unwrap_or_default(),
        tool: tool.map(Box::new),
        samples,
        warm_up: None,
    })))
}

/// No files of earlier runs, no cached data, and the directories of this one. What nodes share is made by the first of them.
fn make_fresh(paths: &mut RunPaths<'_>, meetings: &mut Meetings<'_>) -> Result<()> {
    meetings.meet()?;
    if meetings.is_first() {
        paths.environment.test_dir.empty()?;
    }
    remove_tree(&paths.work)?;
    rustix::fs::sync();
    // Page cache, dentries and inodes.
    system::write("/proc/sys/vm/drop_caches", "3\n")?;
    if meetings.is_first() {
        paths.make()?;
        return meetings.meet();
    }
    meetings.meet()?;
    paths.make_work()
}

/// A run between the start of its tracer and its end.
struct Run<'a, 'm> {
    environment: &'a Environment,
    announced: Announced,
    conditions: &'a mut Conditions,
    link: &'a Link,
    meetings: &'a mut Meetings<'m>,
    children: &'a mut Children,
    tracer: Option<Tracer>,
    tool: Option<tool::Running>,
    phases: Phases,
    /// Where the workload's processes had code when its last phase began.
    workload_code: Vec<Mapping>,
}

/// What the tracer has counted until now, where one counts.
fn reference(tracer: &mut Option<Tracer>) -> Result<Option<Sample>> {
    tracer.as_mut().map(Tracer::sample).transpose()
}

/// The results of the whole workload.
struct Measured {
    cgroup: u64,
    mount: MountFacts,
    /// The mounts of the workload's own namespace, where it has one.
    namespace: Vec<MountFacts>,
    whole: Interval,
    /// Its output, where that is its summary.
    output: Option<String>,
}

impl Run<'_, '_> {
    fn measure(&mut self, spec: &RunSpec, paths: &RunPaths<'_>) -> Result<Measured> {
        let name = run_name::of(&spec.id);
        let mut cgroup = Cgroup::make(&self.environment.cgroups, &name)?;
        let measured = match spec.workload.neighbour {
            true => self.measure_beside(&mut cgroup, spec, paths, &name),
            false => self.measure_in(&mut cgroup, spec, paths),
        };
        // Processes that a failed workload left must not disturb the next one.
        cgroup.kill()?;
        self.children.reap()?;
        cgroup.remove()?;
        measured
    }

    /// Measures while a neighbour runs on the same mount: from before the first reading until after the last.
    fn measure_beside(
        &mut self,
        cgroup: &mut Cgroup,
        spec: &RunSpec,
        paths: &RunPaths<'_>,
        name: &str,
    ) -> Result<Measured> {
        let mut beside = Cgroup::make(&self.environment.cgroups, &format!("{name}-neighbour"))?;
        let measured = workload::start_neighbour(paths, &beside).and_then(|mut neighbour| {
            self.children.expect(neighbour.pid);
            let measured = self.measure_in(cgroup, spec, paths)?;
            self.children.reap()?;
            match self.children.end_of(neighbour.pid) {
                None => Ok(measured),
                // What it did until then may not have disturbed the run.
                Some(status) => Err(Error::Program {
                    program: workload::NEIGHBOUR.to_owned(),
                    problem: ended_how(status),
                    output: output_tail::of_file(&mut neighbour.output),
                }),
            }
        });
        beside.kill()?;
        self.children.reap()?;
        beside.remove()?;
        measured
    }

    /// Sends the addresses of the machine code of programs, and of code of processes, where a tracer or a tool has loaded programs.
    fn send_programs(&mut self) -> Result<()> {
        // A tracer beside a tool is its reference, and not what is tested.
        let (tool, tracer) = (self.tool.as_ref(), self.tracer.as_ref());
        if tool.is_none() && tracer.is_none() {
            return Ok(());
        }
        let (workload, own) = (&self.workload_code, rustix::process::getpid());
        self.conditions.send_programs(self.link, || {
            let (programs, under_test, reference) = match (tool, tracer) {
                (Some(tool), tracer) => (tool.programs()?, tool.processes()?, tracer.map(Tracer::pid)),
                (None, Some(tracer)) => (tracer.programs()?, vec![tracer.pid()], None),
                (None, None) => return Ok(Default::default()),
            };
            let mut others = user_code::of_processes(reference.into_iter().chain([own]));
            others.extend(workload);
            Ok((programs, UserCode { under_test: user_code::of_processes(under_test), others }))
        })
    }

    fn measure_in(&mut self, cgroup: &mut Cgroup, spec: &RunSpec, paths: &RunPaths<'_>) -> Result<Measured> {
        let mount = mountinfo::read(&self.environment.mount)?;
        self.announced.phase(self.link, Phase::Workload, &spec.id)?;
        self.send_programs()?;
        self.conditions.rest(self.tool.as_mut())?;
        if let Some(tool) = &mut self.tool {
            tool.idle()?;
            // Its first reading makes calls that later ones do not.
            if reference(&mut self.tracer)?.is_some() {
                tool.await_report(1, || reference(&mut self.tracer))?;
            }
        }
        self.conditions.begin_run()?;
        let (before, _) = self.reading(if spec.workload.control { Edge::Untimed } else { Edge::Before })?;
        let mut running = workload::start(&spec.workload, paths, cgroup)?;
        self.children.expect(running.pid);
        let namespace = match spec.workload.mounts.is_empty() {
            true => Vec::new(),
            false => mountinfo::of_process(running.pid)?,
        };
        let finished = self.supervise(&mut running, cgroup);
        if finished.is_err() {
            self.end_workload(&running, cgroup)?;
        }
        let status = finished?;
        // Its last output.
        take_output(&mut running)?;
        check_exit(status, &mut running)?;
        // Nor may processes that it left disturb the last reading.
        cgroup.kill()?;
        // Until all have closed their files, none is removed.
        self.meetings.meet()?;
        let (after, _) = self.reading(Edge::After)?;
        // A tool may have loaded some meanwhile.
        self.send_programs()?;
        if let Some(tool) = &mut self.tool
            && self.tracer.is_some()
        {
            // The counters that it read for the first report may be from before the last call.
            tool.await_report(2, || reference(&mut self.tracer))?;
        }
        let output = match running.output {
            Output::Captured(capture) => Some(capture.into_text()),
            Output::File(_) => None,
        };
        Ok(Measured { cgroup: cgroup.id(), mount, namespace, whole: Interval { before, after }, output })
    }

    /// Waits for the workload to end; meanwhile serves its barriers and reads the output of tracer and tool.
    fn supervise(&mut self, running: &mut Running, cgroup: &Cgroup) -> Result<ExitStatus> {
        let mut lines = Lines::new(MAX_LINE);
        let mut listening = running.control.is_some();
        loop {
            self.children.reap()?;
            take_output(running)?;
            if let Some(status) = self.children.end_of(running.pid) {
                return Ok(status);
            }
            let left = running.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(failed(running, "passed its deadline and was killed with its cgroup".to_owned()));
            }
            let control = running.control.as_mut().filter(|_| listening);
            let mut waiting = vec![PollFd::new(&*self.children, PollFlags::IN)];
            waiting.extend(self.tracer.as_ref().map(|tracer| PollFd::from_borrowed_fd(tracer.as_fd(), PollFlags::IN)));
            waiting.extend(control.as_ref().map(|control| PollFd::new(&control.socket, PollFlags::IN)));
            waiting.extend(
                self.tool
                    .iter()
                    .flat_map(tool::Running::streams)
                    .map(|stream| PollFd::from_borrowed_fd(stream, PollFlags::IN)),
            );
            if let Output::Captured(capture) = &running.output {
                waiting.extend(capture.streams().map(|stream| PollFd::from_borrowed_fd(stream, PollFlags::IN)));
            }
            let asked_in = self.tool.as_ref().and_then(tool::Running::asked_in);
            wait_readable(&mut waiting, asked_in.into_iter().chain(left).min())?;
            let mut ready = waiting.iter().skip(1).map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>().into_iter();
            drop(waiting);
            if let Some(tool) = &mut self.tool {
                tool.take()?;
                if tool.asked_in().is_some_and(|left| left.is_zero()) {
                    tool.ask(|| Ok(None))?;
                }
            }
            if let Some(tracer) = &mut self.tracer
                && ready.next() == Some(true)
            {
                tracer.take_periodic()?;
            }
            let Some(control) = control.filter(|_| ready.next() == Some(true)) else { continue };
            let taken = lines.take(&mut control.socket).map_err(|error| misspoke(error.to_string()))?;
            while let Some(line) = lines.next() {
                self.barrier(&line, running.pid, cgroup)?;
                // That a workload is gone is noticed by its exit, above.
                match control.socket.write_all(b"g") {
                    Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                    other => other.map_err(Error::system("release the workload"))?,
                }
            }
            listening = taken == Taken::Open;
        }
    }

    /// Handles what the workload reports: it has reached the beginning or the end of a phase, or how long its calls took.
    fn barrier(&mut self, line: &[u8], workload: Pid, cgroup: &Cgroup) -> Result<()> {
        let event = serde_json::from_slice::<PhaseEvent>(line).map_err(|error| {
            let beginning: String = String::from_utf8_lossy(line).chars().take(120).collect();
            misspoke(format!("wrote a line that announces no phase ({error}): `{beginning}`"))
        })?;
        match event {
            PhaseEvent::Begin(phase) => {
                if self.conditions.symbols() {
                    self.workload_code = user_code::of_processes(cgroup.processes()?);
                }
                self.conditions.rest(self.tool.as_mut())?;
                self.meetings.meet()?;
                let reading = self.reading(Edge::Before)?;
                let begun = self.phases.begin(phase, reading);
                self.phases.window(marker::begin());
                begun
            }
            PhaseEvent::End { phase, moved, events, mount } => {
                marker::end();
                let reading = self.reading(Edge::After)?;
                let of_workload = |path: String| {
                    let mut mounts = mountinfo::of_process(workload)?.into_iter();
                    let found = mounts.rfind(|mount| mount.path == path);
                    found.ok_or_else(|| misspoke(format!("worked on a mount that it does not have: {path:?}")))
                };
                let mount = mount.map(of_workload).transpose()?;
                // What a node does next must not be in a phase of another.
                self.meetings.meet()?;
                self.phases.end(phase, moved, events, mount, reading)
            }
            PhaseEvent::Calls { phase, calls } => self.phases.calls(&phase, calls),
            PhaseEvent::Meet => return self.meetings.meet(),
        }
        .map_err(misspoke)
    }

    /// Reads clock and counters: the clock next to the phase, the counters on the other side of it.
    fn reading(&mut self, edge: Edge) -> Result<(Reading, Activity)> {
        let early = match edge {
            Edge::Before | Edge::Untimed => None,
            Edge::After => {
                let early = (monotonic_ns()?, idle::read()?, Activity::read());
                self.conditions.end_phase()?;
                Some(early)
            }
        };
        if let Some(tool) = &mut self.tool {
            tool.take()?;
            tool.ask(|| reference(&mut self.tracer))?;
        }
        let tracer = reference(&mut self.tracer)?;
        let counters = mountstats::read(&self.environment.mount)?;
        let (monotonic_ns, idle_ns, mut activity) = match early {
            Some(early) => early,
            // After the tool's report and the tracer's, which are of before.
            None => {
                self.conditions.begin_phase()?;
                let beginning = match edge {
                    Edge::Before => self.conditions.listen(self.tool.as_mut())?,
                    Edge::Untimed | Edge::After => None,
                };
                // What the kernel did while the agent listened is not the phase's.
                let activity = Activity::read();
                if let Some(instant) = beginning {
                    conditions::begin_at(instant)?;
                }
                // Nothing waits between the two: the workload is stopped at the barrier and this process runs.
                let idle = idle::read()?;
                (monotonic_ns()?, idle, activity)
            }
        };
        let (mountstats, rpcs) = counters.map(|counters| (counters.bytes, counters.calls)).unzip();
        activity.rpcs = rpcs;
        Ok((Reading { monotonic_ns, idle_ns, tracer, mountstats }, activity))
    }

    /// Ends a workload that cannot be measured any more.
    fn end_workload(&mut self, running: &Running, cgroup: &mut Cgroup) -> Result<()> {
        cgroup.kill()?;
        match self.children.wait_for(running.pid, KILLING)? {
            Some(_) => Ok(()),
            None => Err(Error::Order(format!("{} does not end although it was killed", running.program))),
        }
    }
}

/// The side of an interval on which a reading is taken.
#[derive(Clone, Copy)]
enum Edge {
    Before,
    /// Before a run that is held at its phases, each of which has a beginning of its own.
    Untimed,
    After,
}

fn misspoke(problem: String) -> Error {
    Error::Program { program: "the workload".to_owned(), problem, output: String::new() }
}

fn check_exit(status: ExitStatus, running: &mut Running) -> Result<()> {
    if status.success() { Ok(()) } else { Err(failed(running, ended_how(status))) }
}

/// Keeps what the workload has printed, where that is its summary.
fn take_output(running: &mut Running) -> Result<()> {
    if let Output::Captured(capture) = &mut running.output
        && !capture.take()?
    {
        return Err(failed(running, format!("wrote more than {} KiB to standard output", MAX_OUTPUT >> 10)));
    }
    Ok(())
}

fn failed(running: &mut Running, problem: String) -> Error {
    Error::Program { program: running.program.clone(), problem, output: running.output_tail() }
}

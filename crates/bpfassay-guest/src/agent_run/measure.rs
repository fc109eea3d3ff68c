// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures one attempt at a run: the workload from start to end, its phases, and the readings
//! around both.

use std::{
    io::Write,
    os::fd::AsFd,
    process::ExitStatus,
    time::{Duration, Instant},
};

use bpfassay_protocol::{
    control::{MAX_LINE, PhaseEvent},
    job::{MAX_OUTPUT, RunSpec},
    message::{BystanderFigures, Interval, MountFacts, Phase, Reading},
    run_name,
    symbols::UserCode,
    tracer_messages::Sample,
};
use rustix::{
    event::{PollFd, PollFlags},
    process::Pid,
};

use super::announced::Announced;
use crate::{
    agent_link::{Link, wait_readable},
    cgroup::Cgroup,
    children::{Children, ended_how},
    conditions::{self, Conditions, RealTime},
    environment::Environment,
    error::{Error, Result},
    line_buffer::{Lines, Taken},
    meetings::Meetings,
    output_tail,
    phases::Phases,
    proc::{cpu_activity::Activity, idle, mountinfo, mountstats},
    ranks::Part,
    steps::monotonic_ns,
    threads, tool,
    tracer::TracerProcess,
    user_code::{self, Mapping},
    window_marker::OpenWindow,
    workload::{self, Output, RunPaths, RunningWorkload},
};

/// How long a killed process can take to disappear.
const KILLING: Duration = Duration::from_secs(30);

/// A run between the start and the end of its tracer.
pub(super) struct RunInFlight<'a, 'm> {
    pub(super) environment: &'a Environment,
    pub(super) announced: Announced,
    pub(super) conditions: &'a mut Conditions,
    pub(super) link: &'a Link,
    pub(super) meetings: &'a mut Meetings<'m>,
    pub(super) children: &'a mut Children,
    pub(super) tracer: Option<TracerProcess>,
    pub(super) tool: Option<tool::RunningTool>,
    pub(super) phases: Phases,
    /// The preparations for the phase that has begun.
    pub(super) for_phase: ForPhase,
    /// Code mappings of the workload's processes when the last phase began.
    pub(super) workload_code: Vec<Mapping>,
    /// Whether to record the workload's threads when a phase begins.
    pub(super) by_thread: bool,
}

/// The agent's preparations for a phase. It is dropped when the phase ends or the workload fails.
#[derive(Debug, Default)]
pub(super) struct ForPhase {
    window: Option<OpenWindow>,
    real_time: Option<RealTime>,
}

/// Returns what the tracer has counted so far, if there is a tracer.
pub(super) fn reference(tracer: &mut Option<TracerProcess>) -> Result<Option<Sample>> {
    tracer.as_mut().map(TracerProcess::sample).transpose()
}

/// The results of the whole workload.
pub(super) struct WorkloadResults {
    pub(super) cgroup: u64,
    pub(super) mount: MountFacts,
    /// The mounts of the workload's own namespace, if it has one.
    pub(super) namespace: Vec<MountFacts>,
    pub(super) bystander: Option<Box<BystanderFigures>>,
    pub(super) whole: Interval,
    /// The workload's output, if the output is its summary.
    pub(super) output: Option<String>,
}

impl RunInFlight<'_, '_> {
    pub(super) fn measure(&mut self, spec: &RunSpec, paths: &RunPaths<'_>) -> Result<WorkloadResults> {
        let name = run_name::of(&spec.id);
        let mut cgroup = Cgroup::make(&self.environment.cgroups, &name)?;
        let measured = match spec.workload.neighbour {
            true => self.measure_beside(&mut cgroup, spec, paths, &name),
            false => self.measure_in(&mut cgroup, spec, paths),
        };
        self.for_phase = ForPhase::default();
        // Processes that a failed workload left must not disturb the next one.
        cgroup.kill()?;
        self.children.reap()?;
        cgroup.remove()?;
        measured
    }

    /// Measures while a neighbour runs on the same mount, from before the first reading until after
    /// the last.
    fn measure_beside(
        &mut self,
        cgroup: &mut Cgroup,
        spec: &RunSpec,
        paths: &RunPaths<'_>,
        name: &str,
    ) -> Result<WorkloadResults> {
        let mut beside = Cgroup::make(&self.environment.cgroups, &format!("{name}-neighbour"))?;
        let measured = workload::start_neighbour(paths, &beside).and_then(|mut neighbour| {
            self.children.expect(neighbour.pid);
            let measured = self.measure_in(cgroup, spec, paths)?;
            self.children.reap()?;
            match self.children.end_of(neighbour.pid) {
                None => Ok(measured),
                // A neighbour that ended early may not have disturbed the whole run.
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

    /// Sends the addresses of the machine code of programs, and of code of processes, if a tracer
    /// or a tool has loaded programs.
    fn send_programs(&mut self) -> Result<()> {
        // If there is a tool, the tracer is the reference and not under test.
        let (tool, tracer) = (self.tool.as_ref(), self.tracer.as_ref());
        if tool.is_none() && tracer.is_none() {
            return Ok(());
        }
        let (workload, own) = (&self.workload_code, rustix::process::getpid());
        self.conditions.send_programs(self.link, || {
            let (programs, under_test, reference) = match (tool, tracer) {
                (Some(tool), tracer) => (tool.programs()?, tool.processes()?, tracer.map(TracerProcess::pid)),
                (None, Some(tracer)) => (tracer.programs()?, vec![tracer.pid()], None),
                (None, None) => return Ok(Default::default()),
            };
            let mut others = user_code::of_processes(reference.into_iter().chain([own]));
            others.extend(workload);
            Ok((programs, UserCode { under_test: user_code::of_processes(under_test), others }))
        })
    }

    fn measure_in(&mut self, cgroup: &mut Cgroup, spec: &RunSpec, paths: &RunPaths<'_>) -> Result<WorkloadResults> {
        let mount = mountinfo::read(&self.environment.mount)?;
        self.announced.phase(self.link, Phase::Workload, &spec.id)?;
        self.send_programs()?;
        self.conditions.rest(self.tool.as_mut())?;
        if let Some(tool) = &mut self.tool {
            tool.idle()?;
            // The first reading makes calls that later readings do not make.
            if reference(&mut self.tracer)?.is_some() {
                tool.await_report(1, || reference(&mut self.tracer))?;
            }
        }
        self.conditions.begin_run()?;
        let turns = self.conditions.short_turns()?;
        let part = Part::of(&spec.workload, self.environment);
        if matches!(part, Part::Launches(_)) {
            // All other nodes attend now, so the launcher finds each of them.
            self.meetings.meet()?;
        }
        let (before, _) = self.reading(if spec.workload.control { Edge::Untimed } else { Edge::Before })?;
        let mut running = workload::start(&spec.workload, part, paths, cgroup)?;
        self.children.expect(running.pid);
        let namespace = match spec.workload.mounts.is_empty() {
            true => Vec::new(),
            false => mountinfo::of_process(running.pid)?,
        };
        let attended = if matches!(part, Part::Attends(_)) { self.meetings.meet() } else { Ok(()) };
        self.until_its_end(attended, &mut running, cgroup)?;
        part.check(&paths.ranks())?;
        // Processes that the workload left must not disturb the last reading.
        cgroup.kill()?;
        // No file is removed until all nodes have closed their files.
        self.meetings.meet()?;
        let bystander = self.measure_bystander(spec, paths)?;
        drop(turns);
        let (after, _) = self.reading(Edge::After)?;
        // A tool can have loaded programs in the meantime.
        self.send_programs()?;
        if let Some(tool) = &mut self.tool
            && self.tracer.is_some()
        {
            // The tool may have read its counters for the first report before the last call.
            tool.await_report(2, || reference(&mut self.tracer))?;
        }
        let output = match running.output {
            Output::Captured(capture) => Some(capture.into_text()),
            // IOR writes one summary, on the node of the first rank.
            Output::File(_) if matches!(part, Part::Attends(_)) => Some(String::new()),
            Output::File(_) => None,
        };
        let whole = Interval { before, after };
        Ok(WorkloadResults { cgroup: cgroup.id(), mount, namespace, bystander, whole, output })
    }

    /// Waits for a workload in `cgroup` to end, and checks how it ended. It is killed if it cannot
    /// be measured, or if it was not `attended`.
    pub(super) fn until_its_end(
        &mut self,
        attended: Result<()>,
        running: &mut RunningWorkload,
        cgroup: &mut Cgroup,
    ) -> Result<()> {
        let finished = attended.and_then(|()| self.supervise(running, cgroup));
        running.held.clear();
        if finished.is_err() {
            self.end_workload(running, cgroup)?;
        }
        let status = finished?;
        // The workload's last output.
        take_output(running)?;
        check_exit(status, running)
    }

    /// Waits for the workload to end. Serves its barriers and reads the output of tracer and tool
    /// in the meantime.
    fn supervise(&mut self, running: &mut RunningWorkload, cgroup: &Cgroup) -> Result<ExitStatus> {
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
                    .flat_map(tool::RunningTool::streams)
                    .map(|stream| PollFd::from_borrowed_fd(stream, PollFlags::IN)),
            );
            if let Output::Captured(capture) = &running.output {
                waiting.extend(capture.streams().map(|stream| PollFd::from_borrowed_fd(stream, PollFlags::IN)));
            }
            let asked_in = self.tool.as_ref().and_then(tool::RunningTool::asked_in);
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
                // The end of a workload is noticed by its exit, above.
                match control.socket.write_all(b"g") {
                    Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                    other => other.map_err(Error::system("release the workload"))?,
                }
            }
            listening = taken == Taken::Open;
        }
    }

    /// Handles a message of the workload: the beginning or end of a phase, or how long its calls
    /// took.
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
                if self.by_thread {
                    self.phases.tasks(threads::of_processes(cgroup.processes()?));
                }
                self.conditions.rest(self.tool.as_mut())?;
                self.meetings.meet()?;
                let reading = self.reading(Edge::Before)?;
                let begun = self.phases.begin(phase, reading);
                self.phases.window(self.for_phase.window.insert(OpenWindow::begin()).number);
                begun
            }
            PhaseEvent::End { phase, moved, events, mount } => {
                self.for_phase.window = None;
                let reading = self.reading(Edge::After)?;
                let of_workload = |path: String| {
                    let mut mounts = mountinfo::of_process(workload)?.into_iter();
                    let found = mounts.rfind(|mount| mount.path == path);
                    found.ok_or_else(|| misspoke(format!("worked on a mount that it does not have: {path:?}")))
                };
                let mount = mount.map(of_workload).transpose()?;
                // The next step of a node must not fall into a phase of another node.
                self.meetings.meet()?;
                self.phases.end(phase, moved, events, mount, reading)
            }
            PhaseEvent::Calls { phase, calls } => self.phases.calls(&phase, calls),
            PhaseEvent::Meet => return self.meetings.meet(),
        }
        .map_err(misspoke)
    }

    /// Reads clock and counters. The clock is read at the phase's edge, the counters outside the
    /// phase.
    fn reading(&mut self, edge: Edge) -> Result<(Reading, Activity)> {
        let early = match edge {
            Edge::Before | Edge::Untimed => None,
            Edge::After => {
                let early = (monotonic_ns()?, idle::read()?, Activity::read());
                self.for_phase.real_time = None;
                Some(early)
            }
        };
        if let Some(tool) = &mut self.tool {
            tool.take()?;
            tool.ask(|| reference(&mut self.tracer))?;
        }
        let tracer = reference(&mut self.tracer)?;
        let counters = mountstats::read(&self.environment.mount)?;
        if let (Edge::After, Some(tool)) = (edge, &mut self.tool) {
            tool.count_keys()?;
        }
        let (monotonic_ns, idle_ns, mut activity) = match early {
            Some(early) => early,
            // This follows the reports of tool and tracer, which belong to the time before the
            // phase.
            None => {
                self.conditions.begin_phase()?;
                let beginning = match edge {
                    Edge::Before => self.conditions.listen(self.tool.as_mut())?,
                    Edge::Untimed | Edge::After => None,
                };
                // The kernel's work while the agent listened does not belong to the phase.
                let activity = Activity::read();
                if let Some(instant) = beginning {
                    self.for_phase.real_time = Some(conditions::begin_at(instant)?);
                }
                // Nothing waits between the two readings: the workload is stopped at the barrier,
                // and this process is running.
                let idle = idle::read()?;
                (monotonic_ns()?, idle, activity)
            }
        };
        let (mountstats, rpcs) = counters.map(|counters| (counters.bytes, counters.calls)).unzip();
        activity.rpcs = rpcs;
        Ok((Reading { monotonic_ns, idle_ns, tracer, mountstats }, activity))
    }

    /// Ends a workload that can no longer be measured.
    fn end_workload(&mut self, running: &RunningWorkload, cgroup: &mut Cgroup) -> Result<()> {
        self.for_phase = ForPhase::default();
        cgroup.kill()?;
        match self.children.wait_for(running.pid, KILLING)? {
            Some(_) => Ok(()),
            None => Err(Error::Order(format!("{} does not end although it was killed", running.program))),
        }
    }
}

/// The side of an interval on which a reading is made.
#[derive(Clone, Copy)]
enum Edge {
    Before,
    /// Before a run that stops at barriers. Each phase has its own beginning.
    Untimed,
    After,
}

pub(super) fn misspoke(problem: String) -> Error {
    Error::Program { program: "the workload".to_owned(), problem, output: String::new() }
}

fn check_exit(status: ExitStatus, running: &mut RunningWorkload) -> Result<()> {
    if status.success() { Ok(()) } else { Err(failed(running, ended_how(status))) }
}

/// Reads what the workload has printed, if its output is its summary.
fn take_output(running: &mut RunningWorkload) -> Result<()> {
    if let Output::Captured(capture) = &mut running.output
        && !capture.take()?
    {
        return Err(failed(running, format!("wrote more than {} KiB to standard output", MAX_OUTPUT >> 10)));
    }
    Ok(())
}

fn failed(running: &mut RunningWorkload, problem: String) -> Error {
    Error::Program { program: running.program.clone(), problem, output: running.output_tail() }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program other than the tracer under test, as a child process in its own cgroup. It is
//! untrusted: its output and the number of its processes are bounded, it ends with its cgroup, and
//! what it leaves is checked.

pub(crate) mod capabilities;
mod echo;
pub(crate) mod endpoint;
mod map_keys;
mod races;
mod readiness;
mod strangers;
mod terminal;
pub(crate) mod tool_output;
pub(crate) mod tool_processes;
pub(crate) mod traces;
mod user_namespace;

use std::{
    collections::BTreeSet,
    os::fd::{BorrowedFd, OwnedFd},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use bpfassay_protocol::{
    nanoseconds,
    privileges::CapabilitySearch,
    tool_job::{self, Ready, Reference, Source, Tool, ToolFigures},
    tracer_messages::{ProgramStatistics, Refusal, Sample, Step},
};
use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    process::{Pid, Signal, kill_process},
};

use self::{
    strangers::HeldIds,
    tool_output::{Output, ReadyPattern, Streams},
    traces::Traces,
};
use crate::{
    agent_link::wait_readable,
    bpf::{self, ObjectKind},
    cgroup::Cgroup,
    children::{Children, ended_how, pid_of},
    environment::Environment,
    error::{Error, Result},
    steps::monotonic_ns,
    workload::{PATH, spawn_in},
};

/// A tool counts as loaded and attached when no further program has appeared for this long.
const QUIET: Duration = Duration::from_secs(2);

/// How long an idle tool is watched: several of the reports that tools make every second.
const IDLE: Duration = Duration::from_secs(3);

/// How long a tool can pause within one report.
const WITHIN_REPORT: Duration = Duration::from_millis(200);

/// How often to check.
const PERIOD: Duration = Duration::from_millis(100);

/// Largest number of processes and threads of a tool: too few to use up the guest's memory.
const MAX_PROCESSES: u32 = 1000;

/// The outcome of an attempt to start a tool.
pub(crate) enum ToolStart {
    Ready(Box<RunningTool>),
    /// The tool ended, or was not ready in time.
    Refused(Refusal),
}

pub(crate) struct RunningTool {
    tool: Tool,
    pid: Pid,
    cgroup: Cgroup,
    streams: Streams,
    output: Output,
    /// The kernel objects that existed before the tool.
    before: Traces,
    /// Whether other programs load objects, too: on a running system.
    is_shared: bool,
    started: Instant,
    asked: Instant,
    figures: ToolFigures,
    /// The kernel keeps statistics for as long as this is open.
    statistics: Option<OwnedFd>,
}

impl RunningTool {
    /// Starts `tool` in a cgroup named `name` at `environment` and waits until it is ready. If
    /// `statistics`, the kernel keeps statistics of programs in the meantime.
    pub(crate) fn start(
        tool: &Tool,
        (environment, name): (&Environment, &str),
        statistics: bool,
        children: &mut Children,
    ) -> Result<ToolStart> {
        let program = tool.command.first().ok_or_else(|| Error::Order("a tool without a command".to_owned()))?;
        let wrong = |error: regex_lite::Error| {
            Error::Order(format!("the pattern of the line of readiness is not a regular expression: {error}"))
        };
        let ready = match &tool.ready {
            Ready::Line { pattern, stream } => Some(ReadyPattern::new(pattern, *stream).map_err(wrong)?),
            _ => None,
        };
        let named = match &tool.ready {
            Ready::Programs { named: Some(pattern), .. } => Some(regex_lite::Regex::new(pattern).map_err(wrong)?),
            _ => None,
        };
        let before = Traces::now()?;
        let statistics = statistics.then(bpf::enable_statistics).transpose()?;
        let cgroup = Cgroup::make(&environment.cgroups, name)?;
        cgroup.limit_processes(MAX_PROCESSES)?;
        let (terminal, output) = terminal::open(tool.privileges.user)?;
        let mut command = Command::new(program);
        command
            .args(tool.command.iter().skip(1))
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", "/run")
            .env("LC_ALL", "C")
            // The C library would often look for /etc/localtime otherwise, which tools report.
            .env("TZ", "UTC0")
            .envs(&tool.environment)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::piped());
        let started = Instant::now();
        let (enter, served) = user_namespace::entry(&tool.privileges)?;
        let spawned = spawn_in(&cgroup, command, None, enter)?;
        user_namespace::end(served)?;
        let mut child = match spawned {
            Ok(child) => child,
            Err(source) => {
                cgroup.remove()?;
                return Err(Error::Spawn { program: program.clone(), source });
            }
        };
        let pid = pid_of(&child)?;
        children.expect(pid);
        let cgroups = environment.cgroups_path.clone();
        let figures = ToolFigures { cgroup: cgroup.id(), cgroups, ..ToolFigures::default() };
        let mut running = Self {
            pid,
            cgroup,
            streams: Streams::new(Some(terminal), child.stderr.take())?,
            output: Output::new(tool.captured, ready),
            before,
            is_shared: !environment.is_guest(),
            started,
            asked: started,
            figures,
            statistics,
            tool: tool.clone(),
        };
        match running.wait_until_ready(named.as_ref(), children) {
            Ok(None) => Ok(ToolStart::Ready(Box::new(running))),
            Ok(Some(message)) => {
                let refusal = running.output.refusal();
                running.end(children)?;
                if let Some(refusal) = refusal {
                    return Ok(ToolStart::Refused(refusal));
                }
                Ok(ToolStart::Refused(Refusal::new(Step::Load, message)))
            }
            Err(error) => {
                running.end(children)?;
                Err(error)
            }
        }
    }

    /// Returns the processes in the tool's cgroup, or an error if the cgroup cannot be read.
    pub(crate) fn processes(&self) -> Result<Vec<Pid>> {
        self.cgroup.processes()
    }

    /// Returns the programs that have appeared since the tool was started, or the kernel's error.
    pub(crate) fn programs(&self) -> Result<BTreeSet<u32>> {
        let mut programs = self.before.new_programs().map_err(|error| self.denied(error))?;
        if self.is_shared && !programs.is_empty() {
            let others = self.others()?;
            programs.retain(|id| !others.programs.contains(id));
        }
        Ok(programs)
    }

    /// Returns the links that have appeared since the tool was started.
    fn links(&self) -> Result<BTreeSet<u32>> {
        let mut links = self.before.new_links().map_err(|error| self.denied(error))?;
        if self.is_shared && !links.is_empty() {
            let others = self.others()?;
            links.retain(|id| !others.links.contains(id));
        }
        Ok(links)
    }

    /// Returns the present kernel objects, except those that others made since the tool's start.
    fn traces(&self) -> Result<Traces> {
        let now = Traces::now().map_err(|error| self.denied(error))?;
        if self.is_shared { Ok(now.without(&self.others()?, &self.before)) } else { Ok(now) }
    }

    /// Adds to the error of a list of objects that the tool may deny it.
    fn denied(&self, error: Error) -> Error {
        traces::denied(error, &format!("while {} runs", self.tool.name))
    }

    /// Returns the objects that processes outside the tool's cgroup hold.
    fn others(&self) -> Result<HeldIds> {
        HeldIds::by_all_but(&self.cgroup.processes()?)
    }

    fn note_ready(&mut self) -> Result<()> {
        self.figures.ready_ns = nanoseconds(self.started.elapsed());
        self.note_objects()?;
        self.figures.resident_bytes[0] = tool_processes::resident(&self.cgroup)?;
        self.figures.processor_us.ready = tool_processes::processor_us(&self.cgroup)?;
        self.count_keys()
    }

    /// Returns the time from the start until the tool was ready.
    const fn ready_after(&self) -> Duration {
        Duration::from_nanos(self.figures.ready_ns)
    }

    /// Notes the programs, maps and links that the tool has now. What an idle tool has is kept in
    /// the end: a tool can be ready before it has made all maps. Programs with which it probed the
    /// kernel outlive their last descriptors.
    fn note_objects(&mut self) -> Result<()> {
        let now = self.traces()?;
        self.figures.programs = bpf::objects(ObjectKind::Program, now.programs_since(&self.before))?;
        self.figures.maps = bpf::objects(ObjectKind::Map, now.maps_since(&self.before))?;
        self.figures.links = now.links_since(&self.before);
        Ok(())
    }

    /// Sets the capabilities with which the tool starts, which were looked for before.
    pub(crate) fn note_capabilities(&mut self, capabilities: Option<CapabilitySearch>) {
        self.figures.capabilities = capabilities;
    }

    /// Waits for a while, to see what the tool does without a workload.
    pub(crate) fn idle(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.figures.processor_us.ready = tool_processes::processor_us(&self.cgroup)?;
        self.rest(IDLE)?;
        self.figures.processor_us.idle = tool_processes::processor_us(&self.cgroup)?;
        self.figures.processor_us.idle_ns = nanoseconds(begun.elapsed());
        self.note_objects()?;
        self.count_keys()
    }

    /// Counts the keys in the tool's maps.
    pub(crate) fn count_keys(&mut self) -> Result<()> {
        map_keys::count(&self.figures.maps, &mut self.figures.map_keys)
    }

    /// Returns the streams on which output arrives, for poll(2).
    pub(crate) fn streams(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.streams.open()
    }

    /// Waits until the tool prints something, but not longer than `longest`.
    fn wait(&self, longest: Duration) -> Result<()> {
        let mut waiting: Vec<_> = self.streams().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        wait_readable(&mut waiting, Some(longest)).map(drop)
    }

    /// Stores the new output of the tool. Returns whether it printed anything.
    pub(crate) fn take(&mut self) -> Result<bool> {
        let taken = self.streams.take()?;
        let any = !taken.is_empty();
        for (time, source, text) in taken {
            self.output.take(time, source, &text, None);
        }
        Ok(any)
    }

    /// Waits for `times` more reports of a tool that prints reports. Stores what `reference`
    /// returns before and after the last report. A report ends when the tool pauses.
    pub(crate) fn await_report(
        &mut self,
        times: u32,
        mut reference: impl FnMut() -> Result<Option<Sample>>,
    ) -> Result<()> {
        let Some(longest) = self.tool.report_within_ms else { return Ok(()) };
        for time in 1..=times {
            let before = if time == times { reference()? } else { None };
            if !self.await_one(Duration::from_millis(longest))? {
                return Ok(());
            }
            if let Some(before) = before {
                self.add_reference(before, &mut reference)?;
            }
        }
        Ok(())
    }

    /// Adds what the reference has counted `before` and now to the report that has arrived.
    fn add_reference(&mut self, before: Sample, reference: &mut impl FnMut() -> Result<Option<Sample>>) -> Result<()> {
        if let Some(after) = reference()? {
            self.output.add_reference(Reference { before, after });
        }
        Ok(())
    }

    /// Returns whether the tool reported in time.
    fn await_one(&mut self, longest: Duration) -> Result<bool> {
        let deadline = Instant::now() + longest;
        let mut has_begun = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(has_begun);
            }
            self.wait(if has_begun { left.min(WITHIN_REPORT) } else { left })?;
            match self.take()? {
                true => has_begun = true,
                false if has_begun => return Ok(true),
                false => {}
            }
        }
    }

    /// Returns the time until the endpoint must be requested again. `None` if the tool has no
    /// endpoint, or its endpoint is requested at barriers only.
    pub(crate) fn asked_in(&self) -> Option<Duration> {
        let interval = Duration::from_millis(self.endpoints().filter_map(|endpoint| endpoint.interval_ms).min()?);
        Some(interval.saturating_sub(self.asked.elapsed()))
    }

    fn endpoints(&self) -> impl Iterator<Item = &tool_job::Endpoint> {
        self.tool.endpoint.iter().chain(&self.tool.more_endpoints)
    }

    /// Requests the figures of the tool's endpoints, if it has any. The responses are one report:
    /// if one is missing, there is no report.
    pub(crate) fn ask(&mut self, mut reference: impl FnMut() -> Result<Option<Sample>>) -> Result<()> {
        if self.tool.endpoint.is_none() {
            return Ok(());
        }
        self.asked = Instant::now();
        let before = reference()?;
        let answers: std::result::Result<Vec<Vec<u8>>, String> = self.endpoints().map(endpoint::ask).collect();
        let at_ns = monotonic_ns()?;
        let reference = before.zip(reference()?).map(|(before, after)| Reference { before, after });
        match answers {
            Ok(bodies) => self.output.take_answers(at_ns, &bodies, reference),
            Err(reason) => self.output.take(at_ns, Source::NoAnswer, reason.as_bytes(), reference),
        }
        Ok(())
    }

    /// Stops the tool. Returns its figures, and the kernel's statistics of its programs if the
    /// kernel keeps any. Output that arrives in the meantime is kept, with what `reference` returns
    /// then. Returns an error if the tool had exited before.
    pub(crate) fn stop(
        mut self,
        children: &mut Children,
        mut reference: impl FnMut() -> Result<Option<Sample>>,
    ) -> Result<(ToolFigures, Vec<ProgramStatistics>)> {
        children.reap()?;
        if let Some(status) = children.end_of(self.pid) {
            self.take()?;
            let error = Error::Program {
                program: self.tool.name.clone(),
                problem: format!("{} while it should count", ended_how(status)),
                output: self.output.tail().to_string(),
            };
            self.end(children)?;
            return Err(error);
        }
        self.figures.resident_bytes[1] = tool_processes::resident(&self.cgroup)?;
        self.figures.processor_us.stopped = tool_processes::processor_us(&self.cgroup)?;
        let programs = self.programs()?;
        self.figures.recursion_misses = bpf::recursion_misses(programs.iter().copied())?;
        self.figures.races = Some(races::find(&programs));
        self.figures.missed_probes = bpf::missed_probes(self.links()?)?;
        let statistics = match self.statistics {
            Some(_) => bpf::statistics(programs)?,
            None => Vec::new(),
        };
        let before = reference();
        let signalled = Instant::now();
        match kill_process(self.pid, signal(self.tool.stop.signal)) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(Error::system("stop a tool")(error)),
        }
        let deadline = signalled + Duration::from_millis(self.tool.stop.grace_ms);
        let count = self.output.count();
        let ended = self.wait_for_end(deadline, children)?;
        let read = match before {
            // Output at the end of the tool has not been reported before.
            Ok(Some(before)) if self.output.count() > count => self.add_reference(before, &mut reference),
            before => before.map(drop),
        };
        if let Some(status) = ended {
            self.figures.stop_ns = Some(nanoseconds(signalled.elapsed()));
            self.figures.ended = ended_how(status);
        } else {
            let seconds = self.tool.stop.grace_ms / 1000;
            self.figures.ended = format!("was killed: SIG{} had not ended it after {seconds} s", self.tool.stop.signal);
        }
        let figures = self.end(children)?;
        // An earlier return would leave objects, for which the tool would be blamed.
        read?;
        Ok((figures, statistics))
    }

    fn wait_for_end(&mut self, deadline: Instant, children: &mut Children) -> Result<Option<ExitStatus>> {
        loop {
            self.take()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(status) = children.wait_for(self.pid, left.min(PERIOD))? {
                self.take()?;
                return Ok(Some(status));
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// Kills the tool's processes, and checks what it left in the kernel.
    fn end(mut self, children: &mut Children) -> Result<ToolFigures> {
        self.cgroup.kill()?;
        // The first process may have been reaped already.
        children.wait_for(self.pid, Duration::ZERO)?;
        children.reap()?;
        self.take()?;
        self.cgroup.remove()?;
        // Statistics add a cost to every program, also to those that are left.
        drop(self.statistics.take());
        self.figures.left_behind = self.before.left_now(&self.tool.name, self.is_shared)?;
        (self.figures.output, self.figures.dropped_bytes) = self.output.into_pieces();
        Ok(self.figures)
    }
}

const fn signal(signal: tool_job::Signal) -> Signal {
    match signal {
        tool_job::Signal::Int => Signal::INT,
        tool_job::Signal::Term => Signal::TERM,
        tool_job::Signal::Quit => Signal::QUIT,
        tool_job::Signal::Hup => Signal::HUP,
        tool_job::Signal::Usr1 => Signal::USR1,
        tool_job::Signal::Kill => Signal::KILL,
    }
}

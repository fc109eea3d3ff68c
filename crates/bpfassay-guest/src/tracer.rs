// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracer as a child process: starting it, requesting readings, ending it, or keeping its
//! programs loaded ([`tracer_pool`]).

pub(crate) mod tracer_pool;

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    os::fd::{AsFd, BorrowedFd},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use bpfassay_protocol::{
    job::RunSpec,
    kernel_feature::Feature,
    probe::Probe,
    tracer_messages::{Attached, Ended, MAX_LINE, Refusal, Sample, TracerLine},
};
use rustix::{
    event::{PollFd, PollFlags},
    process::Pid,
};

use crate::{
    agent_link::wait_readable,
    children::{Children, ended_how, pid_of},
    environment::Environment,
    error::{Error, Result},
    line_buffer::{Lines, Taken},
    output_tail,
    soundness::programs_of,
    workload,
};

/// How long loading and attaching can take. The host can have a shorter limit.
const ATTACHING: Duration = Duration::from_secs(180);

/// How long a reading can take.
const READING: Duration = Duration::from_secs(60);

/// How long detaching can take before the tracer is killed.
const DETACHING: Duration = Duration::from_secs(30);

/// Largest number of rows of periodic samples that are kept, at about 150 bytes each.
const MAX_ROWS: usize = 200_000;

/// The outcome of an attempt to start a tracer.
pub(crate) enum TracerStart {
    Attached(Box<TracerProcess>),
    /// The tracer does not work on this kernel.
    Refused(Refusal),
}

/// A running tracer, attached.
pub(crate) struct TracerProcess {
    process: Process,
    attached: Attached,
    periodic: Periodic,
    asked: u64,
    /// Whether the tracer did something unexpected.
    failed: bool,
}

struct Process {
    pid: Pid,
    /// The tracer's arguments, without the agent's additions.
    arguments: Vec<String>,
    /// Whether the tracer attaches and detaches by commands.
    keeps_loaded: bool,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: File,
    lines: Lines,
}

/// Periodic samples, bounded.
#[derive(Debug, Default)]
struct Periodic {
    samples: Vec<Sample>,
    rows: usize,
    dropped: u64,
}

impl Periodic {
    fn keep(&mut self, sample: Sample) {
        // A sample without rows needs space, too.
        let rows = sample.rows.len() + sample.events.len() + 1;
        if self.rows + rows > MAX_ROWS {
            self.dropped += 1;
        } else {
            self.rows += rows;
            self.samples.push(sample);
        }
    }

    /// Combines the samples with the other results of a tracer.
    fn remains(self, attached: Attached, ended: Option<Ended>, mut notes: Vec<String>) -> Remains {
        if self.dropped > 0 {
            notes.push(format!("the last {} periodic samples were dropped: too many rows", self.dropped));
        }
        Remains { attached, samples: self.samples, ended, notes }
    }
}

/// The results of a tracer.
pub(crate) struct Remains {
    pub attached: Attached,
    /// Periodic samples, in order.
    pub samples: Vec<Sample>,
    /// The tracer's last report.
    pub ended: Option<Ended>,
    /// Notes for the host on how the tracer ended.
    pub notes: Vec<String>,
}

/// Returns the arguments of the tracer for `spec`.
fn arguments(spec: &RunSpec, environment: &Environment) -> Vec<String> {
    let probe = spec.probe;
    let mut arguments = vec!["--probe".to_owned(), probe.to_string()];
    if spec.bpf_stats {
        arguments.push("--bpf-stats".to_owned());
    }
    if let Some(interval) = spec.sampling_interval_ms {
        arguments.extend(["--interval".to_owned(), format!("{interval}ms")]);
    }
    // The functions of the workload are probed: a static program contains its C library.
    if probe.probe == Probe::Uprobe && !spec.tracer_arguments.iter().any(|argument| argument.starts_with("--uprobe")) {
        arguments.extend(["--uprobe".to_owned(), workload::program(&spec.workload, environment).to_owned()]);
    }
    arguments.extend_from_slice(&spec.tracer_arguments);
    arguments
}

/// Creates the tracer's command. The agent reads standard output; standard error goes to `stderr`.
fn command(environment: &Environment, stderr: &File) -> Result<Command> {
    let mut command = Command::new(&environment.tracer);
    command
        .env_clear()
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdout(Stdio::piped())
        .stderr(stderr.try_clone().map_err(not_started(environment))?);
    Ok(command)
}

fn not_started(environment: &Environment) -> impl FnOnce(io::Error) -> Error {
    |source| Error::Spawn { program: environment.tracer.clone(), source }
}

/// Returns the features of this kernel. The tracer determines them by trying each. Its standard
/// error goes to `stderr`.
pub(crate) fn features(environment: &Environment, mut stderr: File, children: &mut Children) -> Result<Vec<Feature>> {
    let mut child = command(environment, &stderr)?
        .arg("--features")
        .stdin(Stdio::null())
        .spawn()
        .map_err(not_started(environment))?;
    let pid = pid_of(&child)?;
    children.expect(pid);
    let Some(mut stdout) = child.stdout.take() else {
        return Err(Error::Order(format!("{} was started without pipes", environment.tracer)));
    };
    let line = next_line(&mut Lines::new(MAX_LINE), &mut stdout, Instant::now() + ATTACHING);
    let status = match children.wait_for(pid, DETACHING)? {
        Some(status) => Some(status),
        None => children.kill(pid, DETACHING)?,
    };
    match (line, status) {
        (Ok(Some(TracerLine::Features { features })), _) => Ok(features),
        (Err(problem), _) => Err(failure(problem, &mut stderr)),
        (Ok(Some(_)), _) => Err(failure("wrote something else in place of the features".to_owned(), &mut stderr)),
        (Ok(None), Some(status)) => {
            Err(failure(format!("{} before it reported the features", ended_how(status)), &mut stderr))
        }
        (Ok(None), None) => Err(failure("does not end although it was killed".to_owned(), &mut stderr)),
    }
}

impl Process {
    /// Starts the tracer with `arguments`. Its standard error goes to `stderr`. If `keeps_loaded`,
    /// it attaches by [`Process::attach`], otherwise at once.
    fn start(
        arguments: Vec<String>,
        keeps_loaded: bool,
        environment: &Environment,
        stderr: File,
        children: &mut Children,
    ) -> Result<Self> {
        let mut child = command(environment, &stderr)?
            .args(["--symbol-cache", &environment.symbols])
            .args(keeps_loaded.then_some("--keep-loaded"))
            .args(&arguments)
            .stdin(Stdio::piped())
            .spawn()
            .map_err(not_started(environment))?;
        let pid = pid_of(&child)?;
        children.expect(pid);
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Order(format!("{} was started without pipes", environment.tracer)));
        };
        Ok(Self { pid, arguments, keeps_loaded, stdin, stdout, stderr, lines: Lines::new(MAX_LINE) })
    }

    /// Makes a tracer that keeps its programs loaded attach them, and waits like
    /// [`Process::attached`].
    fn attach(mut self, children: &mut Children) -> Result<TracerStart> {
        match self.send("attach") {
            Ok(()) => self.attached(children),
            Err(error) => {
                children.kill(self.pid, DETACHING)?;
                Err(error)
            }
        }
    }

    /// Waits until the tracer counts or refuses.
    fn attached(mut self, children: &mut Children) -> Result<TracerStart> {
        let first = self.next_line(Instant::now() + ATTACHING);
        let Self { pid, stdin, mut stderr, .. } = match first {
            Ok(Some(TracerLine::Ready(attached))) => {
                let periodic = Periodic::default();
                let tracer = TracerProcess { process: self, attached, periodic, asked: 0, failed: false };
                return Ok(TracerStart::Attached(Box::new(tracer)));
            }
            _ => self,
        };
        drop(stdin);
        if let Ok(Some(TracerLine::Refused(refusal))) = first {
            if children.wait_for(pid, DETACHING)?.is_none() {
                children.kill(pid, DETACHING)?;
            }
            return Ok(TracerStart::Refused(refusal));
        }
        let ended = matches!(first, Ok(None));
        let status = if ended { children.wait_for(pid, DETACHING)? } else { None };
        if status.is_none() {
            children.kill(pid, DETACHING)?;
        }
        let problem = match (first, status) {
            (Err(problem), _) => problem,
            (Ok(Some(_)), _) => "sent a reading before it reported that it had attached".to_owned(),
            (Ok(None), Some(status)) => {
                format!("{} before it reported that it had attached", ended_how(status))
            }
            (Ok(None), None) => "closed its output before it reported that it had attached".to_owned(),
        };
        Err(failure(problem, &mut stderr))
    }

    fn send(&mut self, command: &str) -> Result<()> {
        self.stdin
            .write_all(format!("{command}\n").as_bytes())
            .map_err(|error| failure(format!("does not take commands any more: {error}"), &mut self.stderr))
    }

    fn next_line(&mut self, deadline: Instant) -> std::result::Result<Option<TracerLine>, String> {
        next_line(&mut self.lines, &mut self.stdout, deadline)
    }

    /// Discards the standard error so far, which belongs to another run.
    fn forget_output(&mut self) -> io::Result<()> {
        self.stderr.set_len(0)?;
        // The tracer has the same file offset.
        self.stderr.seek(SeekFrom::Start(0)).map(drop)
    }

    /// Ends the tracer, and reads what it still writes. Notes on its end go to `notes`.
    fn end(self, children: &mut Children, periodic: &mut Periodic, notes: &mut Vec<String>) -> Result<Option<Ended>> {
        let Self { pid, stdin, mut stdout, mut stderr, mut lines, .. } = self;
        drop(stdin);
        let mut ended = None;
        let deadline = Instant::now() + DETACHING;
        loop {
            match next_line(&mut lines, &mut stdout, deadline) {
                Ok(None) => break,
                Ok(Some(TracerLine::Sample(sample))) if sample.label.is_none() => periodic.keep(sample),
                Ok(Some(TracerLine::Ended(end))) if ended.is_none() => ended = Some(end),
                Ok(Some(_)) => notes.push("the tracer wrote something that was not requested".to_owned()),
                Err(problem) => {
                    notes.push(format!("the tracer {problem} while it was being stopped"));
                    break;
                }
            }
        }
        match children.wait_for(pid, deadline.saturating_duration_since(Instant::now()))? {
            Some(status) if status.success() => {}
            Some(status) => {
                notes.push(failure(format!("{} when it was stopped", ended_how(status)), &mut stderr).to_string());
            }
            None => {
                children.kill(pid, DETACHING)?;
                notes.push(format!("the tracer did not end within {} s and was killed", DETACHING.as_secs()));
            }
        }
        Ok(ended)
    }
}

impl TracerProcess {
    /// Requests a reading now.
    pub(crate) fn sample(&mut self) -> Result<Sample> {
        self.asked += 1;
        let label = self.asked.to_string();
        if let Err(error) = self.process.send(&format!("sample {label}")) {
            self.failed = true;
            return Err(error);
        }
        let deadline = Instant::now() + READING;
        loop {
            match self.process.next_line(deadline) {
                Ok(Some(TracerLine::Sample(sample))) if sample.label.as_deref() == Some(&label) => return Ok(sample),
                Ok(Some(TracerLine::Sample(sample))) if sample.label.is_none() => self.periodic.keep(sample),
                other => return Err(self.unexpected(other)),
            }
        }
    }

    /// Reads arrived periodic samples. Call this when [`TracerProcess::as_fd`] is readable.
    pub(crate) fn take_periodic(&mut self) -> Result<()> {
        let taken = self.process.lines.take(&mut self.process.stdout);
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => return Err(self.unexpected(Err(error.to_string()))),
        };
        while let Some(line) = self.process.lines.next() {
            match parse(&line) {
                Ok(TracerLine::Sample(sample)) if sample.label.is_none() => self.periodic.keep(sample),
                other => return Err(self.unexpected(other.map(Some))),
            }
        }
        if taken == Taken::Closed { Err(self.unexpected(Ok(None))) } else { Ok(()) }
    }

    fn unexpected(&mut self, line: std::result::Result<Option<TracerLine>, String>) -> Error {
        self.failed = true;
        let problem = match line {
            Err(problem) => problem,
            Ok(Some(_)) => "wrote something that was not requested".to_owned(),
            Ok(None) => "ended while it should count".to_owned(),
        };
        failure(problem, &mut self.process.stderr)
    }

    /// Returns the tracer's process.
    pub(crate) const fn pid(&self) -> Pid {
        self.process.pid
    }

    /// Returns the programs that the tracer holds.
    ///
    /// # Errors
    /// The tracer's descriptors cannot be read.
    pub(crate) fn programs(&self) -> Result<BTreeSet<u32>> {
        programs_of(self.process.pid)
            .map_err(|problem| Error::Order(format!("cannot tell which programs the tracer has loaded: {problem}")))
    }

    /// Detaches a tracer that keeps its programs loaded. Returns the process if that succeeded,
    /// otherwise ends it.
    fn detach(mut self, children: &mut Children) -> Result<(Remains, Option<Process>)> {
        if self.failed || self.process.send("detach").is_err() {
            return self.stop(children).map(|remains| (remains, None));
        }
        let deadline = Instant::now() + DETACHING;
        let problem = loop {
            match self.process.next_line(deadline) {
                Ok(Some(TracerLine::Sample(sample))) if sample.label.is_none() => self.periodic.keep(sample),
                Ok(Some(TracerLine::Ended(ended))) => {
                    let Self { process, attached, periodic, .. } = self;
                    return Ok((periodic.remains(attached, Some(ended), Vec::new()), Some(process)));
                }
                // `stop` reports below how the tracer ended.
                Ok(None) => break None,
                Ok(Some(_)) => break Some("wrote something that was not requested".to_owned()),
                Err(problem) => break Some(problem),
            }
        };
        let mut remains = self.stop(children)?;
        remains.notes.extend(problem.map(|problem| format!("the tracer {problem} while it was being detached")));
        Ok((remains, None))
    }

    /// Detaches and ends the tracer.
    fn stop(self, children: &mut Children) -> Result<Remains> {
        let Self { process, attached, mut periodic, .. } = self;
        let mut notes = Vec::new();
        let ended = process.end(children, &mut periodic, &mut notes)?;
        Ok(periodic.remains(attached, ended, notes))
    }
}

impl AsFd for TracerProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.stdout.as_fd()
    }
}

fn failure(problem: impl Into<String>, stderr: &mut File) -> Error {
    Error::Program { program: "the tracer".to_owned(), problem: problem.into(), output: output_tail::of_file(stderr) }
}

/// Returns the next message; `None` at the end of the output. An error is a predicate.
fn next_line(
    lines: &mut Lines,
    stdout: &mut ChildStdout,
    deadline: Instant,
) -> std::result::Result<Option<TracerLine>, String> {
    loop {
        if let Some(line) = lines.next() {
            return parse(&line).map(Some);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let ready = wait_readable(&mut [PollFd::new(stdout, PollFlags::IN)], Some(left));
        if ready.map_err(|error| format!("cannot be waited for: {error}"))? == 0 {
            return Err("did not answer in time".to_owned());
        }
        if lines.take(stdout).map_err(|error| error.to_string())? == Taken::Closed {
            return lines.next().map(|line| parse(&line)).transpose();
        }
    }
}

pub(crate) fn parse(line: &[u8]) -> std::result::Result<TracerLine, String> {
    serde_json::from_slice(line).map_err(|error| {
        let beginning: String = String::from_utf8_lossy(line).chars().take(120).collect();
        // The error can quote a part of the line, of any length.
        let error: String = error.to_string().chars().take(200).collect();
        format!("wrote a line that is no message ({error}): `{beginning}`")
    })
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::job::Workload;
    use proptest::prelude::*;

    use super::*;

    pub(super) fn spec(probe: &str, interval: Option<u64>) -> RunSpec {
        RunSpec {
            id: "r1".to_owned(),
            probe: probe.parse().unwrap(),
            sampling_interval_ms: interval,
            bpf_stats: false,
            tool: None,
            tracer_arguments: Vec::new(),
            until_steady: None,
            workload: Workload { control: true, ..Workload::default() },
        }
    }

    fn arguments_of(spec: &RunSpec) -> Vec<String> {
        arguments(spec, &Environment::guest("/mnt/nfs", None))
    }

    #[test]
    fn arguments_name_the_probe_configuration() {
        assert_eq!(arguments_of(&spec("fexit", None)), ["--probe", "fexit"]);
        assert_eq!(arguments_of(&spec("fexit+ringbuf@aya", None)), ["--probe", "fexit+ringbuf@aya"]);
        assert_eq!(arguments_of(&spec("kprobe", Some(2000)))[2..], ["--interval", "2000ms"]);
        assert_eq!(arguments_of(&spec("uprobe", None))[2..], ["--uprobe", "/bpfassay/ior"]);
        let own = RunSpec { tracer_arguments: vec!["--uprobe=/lib/libx.so".to_owned()], ..spec("uprobe", None) };
        assert_eq!(arguments_of(&own)[2..], ["--uprobe=/lib/libx.so"]);
        let more = RunSpec { tracer_arguments: vec!["--merge".to_owned()], ..spec("fexit", None) };
        assert_eq!(arguments_of(&more)[2..], ["--merge"]);
    }

    #[test]
    fn samples_are_kept_up_to_a_bound_and_counted_beyond() {
        let mut periodic = Periodic::default();
        let sample =
            Sample { monotonic_ns: 1, label: None, rows: Vec::new(), events: Vec::new(), losses: Default::default() };
        for _ in 0..MAX_ROWS + 5 {
            periodic.keep(sample.clone());
        }
        assert_eq!((periodic.samples.len(), periodic.dropped), (MAX_ROWS, 5));
    }

    proptest! {
        #[test]
        fn any_line_is_survived(line: Vec<u8>) {
            let _ = parse(&line);
        }
    }
}

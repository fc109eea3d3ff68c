// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of an attached tracer: reads commands, writes samples and serves counters to
//! Prometheus, until the end of standard input or a signal.

use std::{
    io::{self, Stdin, Write},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use bpfassay_protocol::{
    ProbeConfiguration,
    tracer_messages::{Ended, Refusal, TracerLine},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime},
};

use crate::{
    counters::{counting_tracer::Tracer, error::ReadError},
    loader::plan::{loaded::Since, tracer_options::TracerOptions},
    service::{
        endpoint::{ListenError, MetricsEndpoint},
        metrics,
        sampler::Sampler,
        service_command::{CommandError, Commands, ServiceCommand},
        stop_signals,
    },
};

/// Why an attached tracer stopped without a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("cannot write to standard output: the reader of the samples must read until the tracer exits")]
    Output(#[source] io::Error),
    #[error("a line cannot be written as JSON")]
    Json(#[source] serde_json::Error),
    #[error("cannot read commands from standard input")]
    Input(#[source] io::Error),
    #[error("cannot {what}")]
    Setup { what: &'static str, source: io::Error },
}

#[derive(Debug)]
pub(crate) struct Output<W> {
    writer: W,
    line: Vec<u8>,
}

impl<W: Write> Output<W> {
    pub(crate) fn new(writer: W) -> Self {
        Self { writer, line: Vec::new() }
    }

    /// Writes one line and flushes it.
    ///
    /// # Errors
    /// [`ServeError::Output`] if the line cannot be written, [`ServeError::Json`] if it has no form
    /// in JSON.
    pub(crate) fn line(&mut self, line: &TracerLine) -> Result<(), ServeError> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line).map_err(ServeError::Json)?;
        self.line.push(b'\n');
        self.writer.write_all(&self.line).and_then(|()| self.writer.flush()).map_err(ServeError::Output)
    }
}

/// The tracer's tasks in addition to executing commands.
#[derive(Debug)]
pub(crate) struct Service {
    /// How often to write a sample without a command.
    pub(crate) interval: Option<Duration>,
    /// Whether `readv` counts as `read` and `writev` as `write`.
    pub(crate) merge: bool,
    /// Whether to continue after the end of standard input, until a signal arrives.
    pub(crate) stay: bool,
    /// The endpoint that serves the counters to Prometheus.
    pub(crate) endpoint: Option<MetricsEndpoint>,
}

/// How a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionEnding {
    /// The programs must be detached, and stay loaded.
    Detach,
    /// The program must end.
    End,
}

/// Commands and signals, for the life of the program.
struct Input {
    stdin: Stdin,
    /// Present until the end of standard input.
    commands: Option<Commands>,
    signals: OwnedFd,
}

impl Input {
    fn new(keeps_loaded: bool) -> Result<Self, ServeError> {
        let signals = stop_signals::descriptor()
            .map_err(|source| ServeError::Setup { what: "block SIGINT and SIGTERM", source })?;
        Ok(Self { stdin: io::stdin(), commands: Some(Commands::new(keeps_loaded)), signals })
    }

    /// Reads what has arrived. Returns whether more can arrive.
    fn take(&mut self) -> Result<bool, ServeError> {
        let Some(commands) = &mut self.commands else { return Ok(false) };
        let mut bytes = [0; 4096];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(self.stdin.as_fd(), &mut bytes))
            .map_err(|error| ServeError::Input(error.into()))?;
        commands.push(&bytes[..read]);
        Ok(read > 0)
    }

    /// Returns the next command that has arrived.
    fn next(&mut self) -> Result<Option<ServiceCommand>, ServeError> {
        Ok(self.commands.as_mut().map(Commands::next).transpose()?.flatten())
    }

    fn finish(&mut self) -> Result<(), ServeError> {
        Ok(self.commands.take().map_or(Ok(()), Commands::finish)?)
    }

    /// Waits until the programs must be attached. Returns `false` if the program must end.
    fn await_attach(&mut self) -> Result<bool, ServeError> {
        loop {
            match self.next()? {
                Some(ServiceCommand::Attach) => return Ok(true),
                Some(other) => return Err(other.untimely("not attached").into()),
                None => {}
            }
            let ready = wait(&self.stdin, &self.signals, None, None, true, None)?;
            if ready.signal {
                return Ok(false);
            }
            if ready.input && !self.take()? {
                self.finish()?;
                return Ok(false);
            }
        }
    }
}

/// Attaches the programs of `configuration` and serves them until the end of standard input or a
/// signal.
///
/// # Errors
/// [`ServeError`] if input, output, a reading or the endpoint fails. A refusal by the kernel is not
/// an error: it is reported as a line.
pub(crate) fn once<W: Write>(
    (configuration, options): (ProbeConfiguration, &TracerOptions),
    mut service: Service,
    statistics: bool,
    output: &mut Output<W>,
) -> Result<Served, ServeError> {
    let mut tracer = match Tracer::bring_up(configuration, options) {
        Ok(tracer) => tracer,
        Err(refusal) => return refused(refusal, output),
    };
    serve(&mut tracer, &mut service, &mut Input::new(false)?, output)?;
    end(&mut tracer, statistics, output)?;
    Ok(Served::Ended)
}

/// Attaches and detaches the programs of `configuration` by commands, and serves them in the
/// meantime. They are loaded when they are first attached, and again if the kernel does not attach
/// them a second time.
///
/// # Errors
/// [`ServeError`] if input, output, a reading or the endpoint fails. A refusal by the kernel is not
/// an error: it is reported as a line.
pub(crate) fn keep_loaded<W: Write>(
    (configuration, options): (ProbeConfiguration, &TracerOptions),
    mut service: Service,
    statistics: bool,
    output: &mut Output<W>,
) -> Result<Served, ServeError> {
    let mut input = Input::new(true)?;
    let mut tracer: Option<Tracer> = None;
    while input.await_attach()? {
        // Before Linux 5.13 (f3a95075549e) the kernel attaches a program to a trampoline only once.
        // Any other refusal would be repeated.
        if tracer.as_mut().is_some_and(|tracer| tracer.attach_again().is_err()) {
            tracer = None;
        }
        let tracer = match &mut tracer {
            Some(tracer) => tracer,
            None => match Tracer::bring_up(configuration, options) {
                Ok(loaded) => tracer.insert(loaded),
                Err(refusal) => return refused(refusal, output),
            },
        };
        let ending = serve(tracer, &mut service, &mut input, output)?;
        end(tracer, statistics, output)?;
        if ending == SessionEnding::End {
            break;
        }
    }
    Ok(Served::Ended)
}

/// How a tracer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    /// The tracer ended as requested.
    Ended,
    /// The kernel refused the tracer's programs, which was reported.
    Refused,
}

fn refused<W: Write>(refusal: Refusal, output: &mut Output<W>) -> Result<Served, ServeError> {
    output.line(&TracerLine::Refused(refusal)).map(|()| Served::Refused)
}

/// Writes the line `ready`, then serves commands, the interval and the metrics endpoint until the
/// programs must be detached.
fn serve<W: Write>(
    tracer: &mut Tracer,
    service: &mut Service,
    input: &mut Input,
    output: &mut Output<W>,
) -> Result<SessionEnding, ServeError> {
    let timer = service.interval.map(timer).transpose().map_err(|source| ServeError::Setup {
        what: "start the timer of the sampling interval",
        source: source.into(),
    })?;
    output.line(&TracerLine::Ready(tracer.attached().clone()))?;
    let mut reader = Sampler::new(tracer, service.merge).map_err(ReadError::Mounts)?;
    loop {
        // Input that arrived together with the command to attach is already in the buffer.
        while let Some(command) = input.next()? {
            match command {
                ServiceCommand::Sample(label) => output.line(&TracerLine::Sample(reader.sample(Some(label))?))?,
                ServiceCommand::Detach => return Ok(SessionEnding::Detach),
                ServiceCommand::Attach => return Err(command.untimely("attached").into()),
            }
        }
        let Input { stdin, commands, signals } = &*input;
        let ready = wait(stdin, signals, timer.as_ref(), reader.fd(), commands.is_some(), service.endpoint.as_ref())?;
        if ready.signal {
            return Ok(SessionEnding::End);
        }
        if ready.events {
            reader.drain()?;
        }
        if ready.input && !input.take()? {
            input.finish()?;
            if !service.stay {
                return Ok(SessionEnding::End);
            }
        }
        if let Some(timer) = timer.as_ref().filter(|_| ready.timer) {
            // Intervals that passed without a sample make one sample, not several with the same
            // content.
            rustix::io::retry_on_intr(|| rustix::io::read(timer, &mut [0; 8]))
                .map_err(|source| ServeError::Setup { what: "read the timer", source: source.into() })?;
            output.line(&TracerLine::Sample(reader.sample(None)?))?;
        }
        if let Some(endpoint) = &mut service.endpoint {
            let mut failure = None;
            endpoint.serve(&ready.endpoint, Instant::now(), &mut |format| match reader.snapshot() {
                Ok(snapshot) => Some(metrics::render(&snapshot, format)),
                Err(error) => {
                    failure = Some(error);
                    None
                }
            })?;
            if let Some(error) = failure {
                return Err(error.into());
            }
        }
    }
}

/// Detaches and writes the last line. `statistics` tells whether the kernel kept statistics in the
/// meantime.
fn end<W: Write>(tracer: &mut Tracer, statistics: bool, output: &mut Output<W>) -> Result<(), ServeError> {
    let (statistics, events) =
        if statistics { (tracer.statistics()?, Some(tracer.events()?)) } else { (Vec::new(), None) };
    let findings = tracer.findings()?;
    let start = Since::now();
    let detached = tracer.detach();
    let detach_ns = start.nanoseconds();
    detached?;
    output.line(&TracerLine::Ended(Ended { findings, detach_ns, statistics, events }))
}

/// The descriptors that are readable.
pub(crate) struct ReadyDescriptors {
    pub(crate) signal: bool,
    input: bool,
    timer: bool,
    events: bool,
    pub(crate) endpoint: Vec<bool>,
}

/// Waits until there is something to do.
pub(crate) fn wait(
    stdin: &Stdin,
    signals: &OwnedFd,
    timer: Option<&OwnedFd>,
    events: Option<BorrowedFd<'_>>,
    input: bool,
    endpoint: Option<&MetricsEndpoint>,
) -> Result<ReadyDescriptors, ServeError> {
    let mut waiting = vec![PollFd::new(signals, PollFlags::IN)];
    waiting.extend(input.then(|| PollFd::new(stdin, PollFlags::IN)));
    waiting.extend(timer.map(|timer| PollFd::new(timer, PollFlags::IN)));
    waiting.extend(events.as_ref().map(|events| PollFd::new(events, PollFlags::IN)));
    waiting.extend(endpoint.into_iter().flat_map(MetricsEndpoint::waiting));
    let deadline = endpoint.and_then(MetricsEndpoint::deadline);
    loop {
        // The timeout is rounded up, so that the deadline has passed when it is over.
        let left =
            deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut waiting, timeout.as_ref()) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(ServeError::Setup { what: "wait for commands", source: error.into() }),
        }
    }
    let mut ready = waiting.iter().map(|fd| !fd.revents().is_empty());
    let mut next = |there: bool| there && ready.next() == Some(true);
    Ok(ReadyDescriptors {
        signal: next(true),
        input: next(input),
        timer: next(timer.is_some()),
        events: next(events.is_some()),
        endpoint: ready.collect(),
    })
}

fn timer(interval: Duration) -> rustix::io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let interval = Timespec::try_from(interval).map_err(|_| Errno::INVAL)?;
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: interval, it_value: interval })?;
    Ok(timer)
}

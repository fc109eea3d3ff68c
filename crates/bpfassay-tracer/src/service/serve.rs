// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of an attached tracer: commands in, samples out, counters to Prometheus, until the end of standard input
//! or a signal.

use std::{
    io::{self, Stdin, Write},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use bpfassay_protocol::tracer::{Ended, TracerLine};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime},
};

use crate::{
    counters::{error::ReadError, tracer::Tracer},
    service::{
        command::{Command, CommandError, Commands},
        endpoint::{Endpoint, ListenError},
        metrics,
        sampler::Sampler,
        signals,
    },
};

/// Why an attached tracer stopped without being asked to.
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
    #[error("a line has no JSON form")]
    Json(#[source] serde_json::Error),
    #[error("cannot read commands from standard input")]
    Input(#[source] io::Error),
    #[error("cannot {what}")]
    Setup { what: &'static str, source: io::Error },
}

/// Writes lines.
#[derive(Debug)]
pub(crate) struct Output<W> {
    writer: W,
    line: Vec<u8>,
}

impl<W: Write> Output<W> {
    pub(crate) fn new(writer: W) -> Self {
        Self { writer, line: Vec::new() }
    }

    /// Writes one line and passes it on at once.
    ///
    /// # Errors
    /// [`ServeError::Output`] or [`ServeError::Json`].
    pub(crate) fn line(&mut self, line: &TracerLine) -> Result<(), ServeError> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line).map_err(ServeError::Json)?;
        self.line.push(b'\n');
        self.writer.write_all(&self.line).and_then(|()| self.writer.flush()).map_err(ServeError::Output)
    }
}

/// What to do beside answering commands.
#[derive(Debug)]
pub(crate) struct Service {
    /// How often to write a sample without a command.
    pub(crate) interval: Option<Duration>,
    /// Whether `readv` counts as `read` and `writev` as `write`.
    pub(crate) merge: bool,
    /// Whether to continue after the end of standard input, until a signal comes.
    pub(crate) stay: bool,
    /// Where to serve the counters to Prometheus.
    pub(crate) endpoint: Option<Endpoint>,
}

/// Writes the line `ready`, then serves commands, the interval and the metrics endpoint until the end of standard input or a signal.
///
/// # Errors
/// [`ServeError`].
pub(crate) fn serve<W: Write>(
    tracer: &mut Tracer,
    mut service: Service,
    output: &mut Output<W>,
) -> Result<(), ServeError> {
    let signals =
        signals::descriptor().map_err(|source| ServeError::Setup { what: "block SIGINT and SIGTERM", source })?;
    let timer = service.interval.map(timer).transpose().map_err(|source| ServeError::Setup {
        what: "start the timer of the sampling interval",
        source: source.into(),
    })?;
    output.line(&TracerLine::Ready(tracer.attached().clone()))?;
    let mut reader = Sampler::new(tracer, service.merge).map_err(ReadError::Mounts)?;

    let stdin = io::stdin();
    let mut input = Some(Commands::default());
    loop {
        let ready = wait(&stdin, &signals, timer.as_ref(), reader.fd(), input.is_some(), service.endpoint.as_ref())?;
        if ready.signal {
            return Ok(());
        }
        if ready.events {
            reader.drain()?;
        }
        if ready.input
            && let Some(commands) = &mut input
        {
            let mut bytes = [0; 4096];
            let read = rustix::io::retry_on_intr(|| rustix::io::read(stdin.as_fd(), &mut bytes))
                .map_err(|error| ServeError::Input(error.into()))?;
            commands.push(&bytes[..read]);
            while let Some(Command::Sample(label)) = commands.next()? {
                output.line(&TracerLine::Sample(reader.sample(Some(label))?))?;
            }
            if read == 0 {
                input.take().map_or(Ok(()), Commands::finish)?;
                if !service.stay {
                    return Ok(());
                }
            }
        }
        if let Some(timer) = timer.as_ref().filter(|_| ready.timer) {
            // Intervals that passed unnoticed make one sample, not several with the same content.
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

/// Detaches and writes the last line. `statistics`: whether the kernel kept some meanwhile.
///
/// # Errors
/// [`ServeError`].
pub(crate) fn end<W: Write>(mut tracer: Tracer, statistics: bool, output: &mut Output<W>) -> Result<(), ServeError> {
    let (statistics, events) =
        if statistics { (tracer.statistics()?, Some(tracer.events()?)) } else { (Vec::new(), None) };
    let findings = tracer.findings()?;
    let start = Instant::now();
    drop(tracer);
    let detach_ns = bpfassay_protocol::nanoseconds(start.elapsed());
    output.line(&TracerLine::Ended(Ended { findings, detach_ns, statistics, events }))
}

/// What has something to read.
pub(crate) struct Ready {
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
    endpoint: Option<&Endpoint>,
) -> Result<Ready, ServeError> {
    let mut waiting = vec![PollFd::new(signals, PollFlags::IN)];
    waiting.extend(input.then(|| PollFd::new(stdin, PollFlags::IN)));
    waiting.extend(timer.map(|timer| PollFd::new(timer, PollFlags::IN)));
    waiting.extend(events.as_ref().map(|events| PollFd::new(events, PollFlags::IN)));
    waiting.extend(endpoint.into_iter().flat_map(Endpoint::waiting));
    let deadline = endpoint.and_then(Endpoint::deadline);
    loop {
        // Rounded up, so that the deadline has passed when the time is over.
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
    Ok(Ready {
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

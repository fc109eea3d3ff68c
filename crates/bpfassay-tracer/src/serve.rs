//! The life of an attached tracer: commands in, samples out, until the end of standard input or a signal.

use std::{
    io::{self, Write},
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use bpfassay_protocol::tracer::{Sample, TracerLine};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
        timerfd_settime,
    },
};

use crate::{
    command::{Command, CommandError, Commands},
    signals,
    tracer::{ReadError, Tracer},
};

/// Why an attached tracer stopped other than by being told to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("cannot write to standard output: whoever reads the samples must read until the tracer exits")]
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

/// Announces the tracer and serves commands and the interval.
///
/// # Errors
/// [`ServeError`].
pub(crate) fn serve<W: Write>(
    tracer: &dyn Tracer,
    interval: Option<Duration>,
    output: &mut Output<W>,
) -> Result<(), ServeError> {
    let signals =
        signals::descriptor().map_err(|source| ServeError::Setup { what: "block SIGINT and SIGTERM", source })?;
    let timer = interval.map(timer).transpose().map_err(|source| ServeError::Setup {
        what: "start the timer of the sampling interval",
        source: source.into(),
    })?;
    output.line(&TracerLine::Ready(tracer.attached().clone()))?;

    let stdin = io::stdin();
    let mut commands = Commands::default();
    loop {
        let mut waiting = vec![PollFd::new(&stdin, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
        waiting.extend(timer.iter().map(|timer| PollFd::new(timer, PollFlags::IN)));
        match poll(&mut waiting, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(ServeError::Setup { what: "wait for commands", source: error.into() }),
        }
        let ready: Vec<bool> = waiting.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[1] {
            return Ok(());
        }
        if ready[0] {
            let mut bytes = [0; 4096];
            let read = rustix::io::retry_on_intr(|| rustix::io::read(stdin.as_fd(), &mut bytes))
                .map_err(|error| ServeError::Input(error.into()))?;
            if read == 0 {
                return Ok(commands.finish()?);
            }
            commands.push(&bytes[..read]);
            while let Some(Command::Sample(label)) = commands.next()? {
                output.line(&TracerLine::Sample(sample(tracer, Some(label))?))?;
            }
        }
        if let Some(timer) = timer.as_ref().filter(|_| ready.get(2) == Some(&true)) {
            // Intervals that passed unnoticed make one sample, not several with the same content.
            rustix::io::retry_on_intr(|| rustix::io::read(timer, &mut [0; 8]))
                .map_err(|source| ServeError::Setup { what: "read the timer", source: source.into() })?;
            output.line(&TracerLine::Sample(sample(tracer, None)?))?;
        }
    }
}

fn timer(interval: Duration) -> rustix::io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let interval = Timespec::try_from(interval).map_err(|_| Errno::INVAL)?;
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: interval, it_value: interval })?;
    Ok(timer)
}

fn sample(tracer: &dyn Tracer, label: Option<String>) -> Result<Sample, ReadError> {
    let now = clock_gettime(ClockId::Monotonic);
    Ok(Sample {
        monotonic_ns: now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs(),
        label,
        rows: tracer.rows()?,
        losses: tracer.losses()?,
    })
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The possible outcomes of a run.

use std::fmt;

use bpfassay_protocol::{
    message::{Phase, RunFigures, RunOutcome},
    tracer_messages::Refusal,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::tagged::{self, Tagged};

/// The outcome of a run. Results tell whether a refusal was expected, from the plan's expectations.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Outcome {
    /// The run has figures.
    Measured(Box<RunFigures>),
    /// The tracer does not work on this kernel. The workload did not run.
    Refused(Refusal),
    /// The run or its guest failed.
    Failed(RunFailure),
}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        tagged::deserialize(deserializer)
    }
}

impl Tagged for Outcome {
    const TAG: &'static str = "type";

    fn of_kind<'de, D: Deserializer<'de>>(kind: &str, rest: D) -> Result<Self, D::Error> {
        match kind {
            "measured" => Box::deserialize(rest).map(Self::Measured),
            "refused" => Refusal::deserialize(rest).map(Self::Refused),
            "failed" => RunFailure::deserialize(rest).map(Self::Failed),
            other => Err(D::Error::unknown_variant(other, &["measured", "refused", "failed"])),
        }
    }
}

impl From<RunOutcome> for Outcome {
    /// Converts a guest's report. A reported failure has no log yet; the caller can set
    /// [`RunFailure::log`].
    fn from(outcome: RunOutcome) -> Self {
        match outcome {
            RunOutcome::Measured(figures) => Self::Measured(figures),
            RunOutcome::Refused(refusal) => Self::Refused(refusal),
            RunOutcome::Failed { message } => Self::Failed(RunFailure {
                kind: FailureKind::Run,
                phase: None,
                excerpt: vec![message],
                log: None,
                after: None,
            }),
        }
    }
}

/// Why a run has no figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunFailure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The phase that the guest was in.
    pub phase: Option<Phase>,
    /// The lines that report it, the most important first.
    pub excerpt: Vec<String>,
    /// The log to read. The path is relative to the results directory if the log is in it.
    pub log: Option<String>,
    /// For a failure after the run had ended: when, and during which run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<AfterRun>,
}

/// A failure that a run caused after it had ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AfterRun {
    /// Milliseconds after the run's end, by the host's clock.
    pub ms: u64,
    /// The run in flight at that time, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<String>,
}

impl fmt::Display for AfterRun {
    /// Prints `30 ms after this run, during RUN2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms after this run", self.ms)?;
        match &self.during {
            Some(run) => write!(f, ", during {run}"),
            None => write!(f, ", between runs"),
        }
    }
}

impl RunFailure {
    /// Describes the failure and its time, without the excerpt: `kernel panic during workload`,
    /// `kernel panic after the run`.
    #[must_use]
    pub fn headline(&self) -> String {
        match (&self.after, self.phase) {
            (Some(_), _) => format!("{} after the run", self.kind.name()),
            (None, Some(phase)) => format!("{} during {phase}", self.kind.name()),
            (None, None) => self.kind.name().to_owned(),
        }
    }
}

impl fmt::Display for RunFailure {
    /// Prints `kernel panic during workload: Kernel panic - not syncing: …; log: logs/….log`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        if let Some(line) = self.excerpt.first() {
            write!(f, ": {line}")?;
        }
        if let Some(log) = &self.log {
            write!(f, "; log: {log}")?;
        }
        Ok(())
    }
}

/// Kind of a failure of a run or its guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The kernel panicked.
    Panic,
    /// The kernel reported an oops.
    Oops,
    /// The kernel reported `BUG:` or hit `BUG_ON`.
    Bug,
    /// An RCU stall.
    RcuStall,
    /// A soft or hard lock-up of a CPU.
    Lockup,
    /// A task blocked for too long.
    HungTask,
    /// The kernel killed a process because memory ran out.
    OutOfMemory,
    /// The kernel could not unpack the whole initramfs.
    Initramfs,
    /// The NFS server did not answer the NFS client.
    NfsStall,
    /// The guest or QEMU ended before all work was done.
    EarlyExit,
    /// A phase exceeded its deadline.
    PhaseTimeout,
    /// The guest did not power off in time after its work was done.
    ShutdownTimeout,
    /// The agent never sent a message.
    BootTimeout,
    /// The guest sent something that is not a valid message.
    ProtocolError,
    /// The guest uses another version of the protocol.
    ProtocolVersion,
    /// The guest's agent gave up.
    Agent,
    /// The workload or the tracer failed, and the guest lives on.
    Run,
    /// The guest changed over the run: a mount is gone, or a program, probe, process or cgroup is
    /// left.
    Unsound,
    /// The run did not begin, because something that it needs failed before. Its probe
    /// configuration or tool ended two boots of the block, or the kernel failed to become ready in
    /// two other blocks, or gave no sign of life in one.
    NotTried,
    /// The host could not start or serve the guest: QEMU missing or killed, disk full, and so on.
    /// Never final: `run --resume` repeats such runs.
    Host,
}

impl FailureKind {
    /// Name of the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Panic => "kernel panic",
            Self::Oops => "kernel oops",
            Self::Bug => "kernel BUG",
            Self::RcuStall => "RCU stall",
            Self::Lockup => "CPU lock-up",
            Self::HungTask => "hung task",
            Self::OutOfMemory => "out of memory",
            Self::Initramfs => "damaged initramfs",
            Self::NfsStall => "NFS stall",
            Self::EarlyExit => "guest ended early",
            Self::PhaseTimeout => "phase timeout",
            Self::ShutdownTimeout => "shutdown timeout",
            Self::BootTimeout => "boot timeout",
            Self::ProtocolError => "protocol error",
            Self::ProtocolVersion => "another protocol version in the guest",
            Self::Agent => "agent gave up",
            Self::Run => "run failed",
            Self::Unsound => "guest left changed",
            Self::NotTried => "not tried",
            Self::Host => "host failure",
        }
    }
}

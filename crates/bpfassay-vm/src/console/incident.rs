// SPDX-License-Identifier: MIT OR Apache-2.0
//! The incidents that a kernel reports about itself.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An incident that a kernel reported about itself on the console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelIncident {
    /// What kind.
    pub kind: KernelIncidentKind,
    /// The line that reported it, without its time stamp.
    pub line: String,
    /// The kernel's time stamp of that line, in microseconds since boot, where it had one.
    pub time_us: Option<u64>,
    /// Lines with details that followed (registers that locate it, task, first frames), bounded in number. Complete only in
    /// [`crate::Ending::incidents`], because they follow the line that reported it.
    pub details: Vec<String>,
}

impl fmt::Display for KernelIncident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.line)
    }
}

/// Kinds of incidents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KernelIncidentKind {
    /// `Kernel panic - not syncing`, or the firmware's counterpart.
    Panic,
    /// The kernel made an invalid access or executed an invalid instruction.
    Oops,
    /// The kernel detected an inconsistency: `kernel BUG at`, `BUG: …`.
    Bug,
    /// A CPU has not passed through a quiescent state in time.
    RcuStall,
    /// A CPU has not scheduled in time.
    SoftLockup,
    /// A CPU has not taken interrupts in time.
    HardLockup,
    /// A task has been blocked for minutes.
    HungTask,
    /// Memory ran out and a process was killed for it.
    OutOfMemory,
    /// The initramfs could not be unpacked in whole.
    Initramfs,
    /// The NFS server does not answer the NFS client.
    NfsStall,
    /// A warning with a place in the source (`WARN_ON`), a lock or sanitiser report.
    Warning,
}

/// The severity of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Recorded with the results; measuring continues.
    Note,
    /// The run in which it occurred cannot be trusted; the guest may recover.
    SpoilsRun,
    /// The guest is dead or cannot be trusted any more.
    Fatal,
}

impl KernelIncidentKind {
    /// Its severity.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::Panic | Self::Oops | Self::Bug => Severity::Fatal,
            Self::RcuStall
            | Self::SoftLockup
            | Self::HardLockup
            | Self::HungTask
            | Self::OutOfMemory
            | Self::Initramfs
            | Self::NfsStall => Severity::SpoilsRun,
            Self::Warning => Severity::Note,
        }
    }
}

impl fmt::Display for KernelIncidentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Panic => "kernel panic",
            Self::Oops => "kernel oops",
            Self::Bug => "kernel bug",
            Self::RcuStall => "RCU stall",
            Self::SoftLockup => "soft lockup",
            Self::HardLockup => "hard lockup",
            Self::HungTask => "hung task",
            Self::OutOfMemory => "out of memory",
            Self::Initramfs => "damaged initramfs",
            Self::NfsStall => "NFS stall",
            Self::Warning => "kernel warning",
        })
    }
}

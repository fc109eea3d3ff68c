// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a guest ended, for results and for people.

use std::fmt;

use bpfassay_protocol::message::Phase;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::console::KernelIncident;

/// The end of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Ending")]
pub struct GuestEnding {
    /// The reason for the end.
    pub reason: EndReason,
    /// The phase in which the guest ended.
    pub phase: Phase,
    /// The run that the guest was executing, if any.
    pub run: Option<String>,
    /// Milliseconds on the host from QEMU's start to its exit.
    pub lived_ms: u64,
    /// The kernel's reports on the console, in order, bounded in number.
    pub incidents: Vec<KernelIncident>,
    /// The last lines of the console, bounded in number and length.
    pub console_tail: Vec<String>,
    /// QEMU's standard error, shortened.
    pub qemu_stderr: String,
    /// The reason if the console log is incomplete (disk full, size limit).
    pub log_incomplete: Option<String>,
}

impl GuestEnding {
    /// Returns the end of a guest whose supervisor has ended. The runtime is shutting down, and has
    /// killed QEMU.
    pub(crate) fn abandoned() -> Self {
        Self {
            reason: EndReason::Stopped,
            phase: Phase::Boot,
            run: None,
            lived_ms: 0,
            incidents: Vec::new(),
            console_tail: Vec::new(),
            qemu_stderr: String::new(),
            log_incomplete: Some("the task that watched the guest ended before it".to_owned()),
        }
    }
}

/// Why a guest ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EndReason {
    /// The guest reported that everything was done, and powered off. This is the only good end of a
    /// measuring guest.
    Done,
    /// The host requested the end.
    Stopped,
    /// The kernel died: panic, oops or BUG. [`GuestEnding::incidents`] has the earlier incidents.
    KernelDied {
        /// The incident with the line that reported it.
        incident: Box<KernelIncident>,
    },
    /// The agent reported that it could not continue.
    AgentFailed {
        /// The agent's message.
        message: String,
    },
    /// The agent found the guest changed after a run, and ended it.
    Unsound {
        /// The run after which the agent found the change.
        run: String,
        /// The differences, a sentence each.
        differences: Vec<String>,
    },
    /// The guest powered off before its work was done.
    PoweredOffEarly,
    /// The guest reset itself without a message on the console, as after a triple fault.
    Reset,
    /// The agent sent no message in time.
    BootTimeout {
        /// Seconds waited.
        seconds: u64,
    },
    /// The agent had sent messages, but did not reach the end of its phase in time.
    PhaseTimeout {
        /// Seconds that the phase can take.
        seconds: u64,
    },
    /// The guest made progress, but had not ended at the deadline of the whole boot.
    TooLong {
        /// Seconds that a boot can take.
        seconds: u64,
    },
    /// The guest wrote more, or faster, than the host accepts.
    Flood {
        /// The output and its amount.
        message: String,
    },
    /// The guest did not power off in time after its work was done.
    ShutdownTimeout {
        /// Seconds waited.
        seconds: u64,
    },
    /// The bytes on the agent's port violate the protocol: no frames, no messages, or messages out
    /// of order ([`crate::OutOfOrder`]).
    ProtocolError {
        /// Description of the violation.
        message: String,
    },
    /// The agent has another version of the protocol.
    ProtocolVersion {
        /// The agent's version.
        theirs: u32,
        /// The host's version.
        ours: u32,
    },
    /// QEMU stopped the guest, for example because of a KVM internal error.
    QemuStopped {
        /// The state of the guest as QEMU names it.
        state: String,
    },
    /// QEMU was stopped on the host (SIGSTOP), so that the guest could not continue in time.
    QemuSuspended,
    /// QEMU itself failed or was killed.
    QemuExited {
        /// QEMU's exit status.
        status: String,
    },
}

impl EndReason {
    /// Returns whether the guest did all its work.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => write!(f, "done"),
            Self::Stopped => write!(f, "stopped by the host"),
            Self::KernelDied { incident } => write!(f, "{incident}"),
            Self::AgentFailed { message } => write!(f, "the agent failed: {message}"),
            Self::Unsound { run, differences } => {
                write!(f, "the guest was found changed after {run}: {}", differences.join("; "))
            }
            Self::PoweredOffEarly => write!(f, "the guest powered off before its work was done"),
            Self::Reset => write!(f, "the guest reset itself without a message on the console"),
            Self::BootTimeout { seconds } => {
                write!(
                    f,
                    "the agent sent no message within {seconds} s, the time for a boot ([deadlines] boot): raise that where its console shows a kernel that was still starting; else check that the agent is in the initramfs, and that the kernel has the virtio console"
                )
            }
            Self::PhaseTimeout { seconds } => {
                write!(
                    f,
                    "the phase was not over after {seconds} s: the guest hung, or a program in it kept its CPUs busy"
                )
            }
            Self::TooLong { seconds } => {
                write!(f, "the guest had not ended {seconds} s after its start, the time for a whole boot")
            }
            Self::Flood { message } => write!(f, "the guest flooded the host: {message}"),
            Self::ShutdownTimeout { seconds } => write!(f, "the guest did not power off within {seconds} s"),
            Self::ProtocolError { message } => write!(f, "protocol error on the agent's port: {message}"),
            Self::ProtocolVersion { theirs, ours } => {
                write!(f, "the agent has protocol version {theirs}, not {ours}: rebuild the guest's programs")
            }
            Self::QemuStopped { state } => write!(f, "QEMU stopped the guest by itself ({state})"),
            Self::QemuSuspended => write!(f, "QEMU was stopped by a signal, and not continued in time"),
            Self::QemuExited { status } => write!(f, "QEMU ended on its own ({status})"),
        }
    }
}

impl fmt::Display for GuestEnding {
    /// Writes one line: reason, phase, and the last line of QEMU's standard error if QEMU failed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        if !self.reason.is_done() {
            write!(f, " (phase {}", self.phase)?;
            if let Some(run) = &self.run {
                write!(f, " of run {run}")?;
            }
            write!(f, ", after {}.{} s)", self.lived_ms / 1000, self.lived_ms % 1000 / 100)?;
        }
        if let (EndReason::QemuExited { .. } | EndReason::QemuStopped { .. }, Some(line)) =
            (&self.reason, self.qemu_stderr.lines().next_back())
        {
            write!(f, ": {line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::KernelIncidentKind;

    fn ending(reason: EndReason) -> GuestEnding {
        GuestEnding {
            reason,
            phase: Phase::Workload,
            run: Some("r7".to_owned()),
            lived_ms: 12_345,
            incidents: Vec::new(),
            console_tail: vec!["last line".to_owned()],
            qemu_stderr: "first\nlast".to_owned(),
            log_incomplete: None,
        }
    }

    fn reasons() -> Vec<EndReason> {
        let incident = KernelIncident {
            kind: KernelIncidentKind::Oops,
            line: "Oops [#1]".to_owned(),
            time_us: Some(7),
            details: vec!["epc : vfs_read+0x2/0x30".to_owned()],
        };
        vec![
            EndReason::Done,
            EndReason::Stopped,
            EndReason::KernelDied { incident: Box::new(incident) },
            EndReason::AgentFailed { message: "mount: no such device".to_owned() },
            EndReason::PoweredOffEarly,
            EndReason::Unsound { run: "r7".to_owned(), differences: vec!["/mnt/nfs is not mounted".to_owned()] },
            EndReason::Reset,
            EndReason::BootTimeout { seconds: 60 },
            EndReason::PhaseTimeout { seconds: 600 },
            EndReason::ShutdownTimeout { seconds: 20 },
            EndReason::ProtocolError { message: "expected a frame".to_owned() },
            EndReason::ProtocolVersion { theirs: 2, ours: 1 },
            EndReason::QemuStopped { state: "internal-error".to_owned() },
            EndReason::QemuSuspended,
            EndReason::QemuExited { status: "signal: 9 (SIGKILL)".to_owned() },
        ]
    }

    #[test]
    fn endings_read_back_as_written() {
        for reason in reasons() {
            let ending = ending(reason);
            let text = serde_json::to_string(&ending).unwrap();
            assert_eq!(serde_json::from_str::<GuestEnding>(&text).unwrap(), ending, "{text}");
        }
    }

    /// The initramfs is not to blame if the time limit is too short, and a guest whose tool burns
    /// the CPU does not hang.
    #[test]
    fn a_time_that_is_over_names_what_may_need_more_of_it() {
        let boot = ending(EndReason::BootTimeout { seconds: 2 }).to_string();
        assert!(boot.contains("within 2 s, the time for a boot ([deadlines] boot): raise that where"), "{boot}");
        let busy = ending(EndReason::PhaseTimeout { seconds: 600 }).to_string();
        assert!(busy.contains("the guest hung, or a program in it kept its CPUs busy"), "{busy}");
    }

    #[test]
    fn an_ending_is_one_line() {
        let lines: Vec<_> = reasons().into_iter().map(|reason| ending(reason).to_string()).collect();
        assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:#?}");
        assert_eq!(lines[0], "done");
        assert_eq!(lines[2], "kernel oops: Oops [#1] (phase workload of run r7, after 12.3 s)");
        let last = "QEMU ended on its own (signal: 9 (SIGKILL)) (phase workload of run r7, after 12.3 s): last";
        assert_eq!(lines[14], last);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classifies how a guest ended, from everything that was observed. Pure.

use std::{io, process::ExitStatus, time::Duration};

use bpfassay_protocol::message::GuestMessage;

use crate::{
    boot_progress::GuestProgress,
    console::{KernelIncident, KernelIncidentKind},
    guest_ending::EndReason,
    monitor::Shutdown,
};

/// Largest part that is kept of a guest's message about its end, in bytes.
const MAX_MESSAGE: usize = 4096;
/// Largest amount that an agent can log in one boot, in bytes. Correct agents log a few lines.
const MAX_LOGGED: usize = 32 << 20;
/// Largest number of differences that are kept of a guest that was changed.
const MAX_DIFFERENCES: usize = 64;

/// The observations of a guest so far.
pub(crate) struct ExitClassifier {
    pub(crate) progress: GuestProgress,
    /// The host's decision to end the guest, after which it kills QEMU.
    decision: Option<EndReason>,
    /// The first sign of the kernel's death, and whether the kernel is certainly dead.
    death: Option<KernelIncident>,
    certain: bool,
    pub(crate) stop_asked: bool,
    pub(crate) shutdown: Option<Shutdown>,
    logged: usize,
}

impl ExitClassifier {
    pub(crate) fn new(progress: GuestProgress) -> Self {
        Self { progress, decision: None, death: None, certain: false, stop_asked: false, shutdown: None, logged: 0 }
    }

    /// Returns whether the host has decided to end the guest, so that QEMU is being killed.
    pub(crate) fn is_decided(&self) -> bool {
        self.decision.is_some()
    }

    /// Returns whether the host's decision is because of the guest's output.
    pub(crate) fn is_flood(&self) -> bool {
        matches!(self.decision, Some(EndReason::Flood { .. }))
    }

    /// Returns whether the kernel is certainly dead.
    pub(crate) fn is_dead(&self) -> bool {
        self.certain
    }

    /// Records that the guest reported a panic to QEMU.
    pub(crate) fn panicked(&mut self) {
        self.certain = true;
    }

    /// Records the host's decision, unless there is one already.
    pub(crate) fn decide(&mut self, reason: EndReason) {
        self.decision.get_or_insert(reason);
    }

    /// Processes a message: its run, and how much the agent has logged. Returns `false` if nothing
    /// more of this guest counts. If the owner reads everything at once, no other limit ends a
    /// guest that logs for ever before the end of its phase.
    pub(crate) fn handle_message(&mut self, message: &GuestMessage, now: Duration) -> bool {
        self.progress.handle_message(message, now);
        let bytes = match message {
            GuestMessage::Log { text } => text.len(),
            GuestMessage::Symbols(symbols) => symbols.functions.len(),
            GuestMessage::Source(source) => source.size(),
            _ => 0,
        };
        if bytes > 0 {
            self.logged = self.logged.saturating_add(bytes);
            if self.logged > MAX_LOGGED {
                let message = format!("more than {} MiB were logged by the agent", MAX_LOGGED >> 20);
                self.decide(EndReason::Flood { message });
                return false;
            }
        }
        true
    }

    /// Processes an incident that the kernel reported.
    pub(crate) fn take_incident(&mut self, incident: &KernelIncident) {
        let (deadly, certain) = match incident.kind {
            KernelIncidentKind::Panic | KernelIncidentKind::Oops => (true, true),
            // Many BUGs are only reported. A panic follows a fatal one.
            KernelIncidentKind::Bug => (true, false),
            _ => (false, false),
        };
        if deadly && self.death.is_none() {
            self.death = Some(incident.clone());
        }
        self.certain |= certain;
    }

    /// Returns the reason for ending a guest that has not progressed in time.
    pub(crate) fn overdue(&self) -> EndReason {
        let seconds = self.progress.allowance().unwrap_or_default().as_secs();
        if self.progress.done || self.progress.failed.is_some() || self.progress.unsound.is_some() {
            EndReason::ShutdownTimeout { seconds }
        } else if self.progress.spoke {
            EndReason::PhaseTimeout { seconds }
        } else {
            EndReason::BootTimeout { seconds }
        }
    }

    /// Returns the reason for the guest's end, from everything known after QEMU's exit and from the
    /// console's `tail`. A certain death of the kernel precedes all other reasons.
    pub(crate) fn reason(
        &self,
        incidents: &[KernelIncident],
        tail: &[String],
        status: &io::Result<ExitStatus>,
    ) -> EndReason {
        let gone = match status {
            Ok(status) => EndReason::QemuExited { status: status.to_string() },
            Err(error) => EndReason::QemuExited { status: error.to_string() },
        };
        let clean = status.as_ref().is_ok_and(ExitStatus::success);
        if self.certain
            && let Some(death) = &self.death
        {
            // The recorded incident has the details that followed.
            let full =
                incidents.iter().find(|incident| incident.line == death.line && incident.time_us == death.time_us);
            return EndReason::KernelDied { incident: Box::new(full.unwrap_or(death).clone()) };
        }
        if let Some(decision) = &self.decision {
            return decision.clone();
        }
        if self.stop_asked {
            return if self.progress.done && clean { EndReason::Done } else { EndReason::Stopped };
        }
        if let Some((run, differences)) = &self.progress.unsound {
            let differences = differences.iter().take(MAX_DIFFERENCES).map(|text| shortened(text)).collect();
            return EndReason::Unsound { run: run.clone(), differences };
        }
        if let Some(message) = &self.progress.failed {
            return EndReason::AgentFailed { message: shortened(message) };
        }
        // QEMU before 8.0 exits at once when the riscv64 board powers off, without a message of the
        // monitor. Its status is not 0 if the guest did not request the power-off.
        let shutdown = self.shutdown.or(clean.then_some(Shutdown::GuestPowerOff));
        match shutdown {
            Some(Shutdown::GuestPowerOff) if self.progress.done && clean => EndReason::Done,
            Some(Shutdown::GuestPowerOff) => match printed_failure(tail).filter(|_| !self.progress.spoke) {
                Some(message) => EndReason::AgentFailed { message },
                None => EndReason::PoweredOffEarly,
            },
            Some(Shutdown::GuestReset | Shutdown::GuestPanic) => EndReason::Reset,
            Some(Shutdown::Host | Shutdown::Error) | None => gone,
        }
    }
}

/// Finds the agent's failure on the console. The agent prints it there if it cannot send messages,
/// because without the console's driver there is no port.
fn printed_failure(tail: &[String]) -> Option<String> {
    tail.iter().find_map(|line| Some(shortened(line.split_once("bpfassay-guest: failed: ")?.1)))
}

/// Returns the beginning of a guest's message.
fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_MESSAGE)].to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::boot_progress::GuestDeadlines;

    fn classifier(messages: &[GuestMessage]) -> ExitClassifier {
        let mut progress = GuestProgress::new(GuestDeadlines::default());
        for message in messages {
            progress.handle_message(message, Duration::ZERO);
        }
        ExitClassifier::new(progress)
    }

    fn incident(kind: KernelIncidentKind, line: &str) -> KernelIncident {
        KernelIncident { kind, line: line.to_owned(), time_us: Some(1), details: Vec::new() }
    }

    fn exited(code: i32) -> io::Result<ExitStatus> {
        Ok(ExitStatus::from_raw(code << 8))
    }

    const DONE: &[GuestMessage] = &[GuestMessage::Done];

    #[test]
    fn only_a_clean_power_off_after_the_last_message_is_done() {
        let mut good = classifier(DONE);
        good.shutdown = Some(Shutdown::GuestPowerOff);
        assert_eq!(good.reason(&[], &[], &exited(0)), EndReason::Done);
        assert_eq!(good.reason(&[], &[], &exited(1)), EndReason::PoweredOffEarly);

        let mut reset = classifier(DONE);
        reset.shutdown = Some(Shutdown::GuestReset);
        assert_eq!(reset.reason(&[], &[], &exited(0)), EndReason::Reset);

        // The monitor of QEMU 7.2 for riscv64 does not report a power-off.
        assert_eq!(classifier(DONE).reason(&[], &[], &exited(0)), EndReason::Done);
        assert_eq!(classifier(&[]).reason(&[], &[], &exited(0)), EndReason::PoweredOffEarly);
        let tail = ["bpfassay-guest: failed: no port", "[   30.7] reboot: Power down"].map(str::to_owned);
        let failed = EndReason::AgentFailed { message: "no port".to_owned() };
        assert_eq!(classifier(&[]).reason(&[], &tail, &exited(0)), failed);
        // If the agent has sent messages, a failure on the console is printed by a tool.
        assert_eq!(good.reason(&[], &tail, &exited(1)), EndReason::PoweredOffEarly);
        assert!(matches!(classifier(DONE).reason(&[], &[], &exited(1)), EndReason::QemuExited { .. }));
        assert!(matches!(
            classifier(DONE).reason(&[], &[], &Err(io::Error::other("lost"))),
            EndReason::QemuExited { .. }
        ));
    }

    #[test]
    fn an_agent_that_logs_for_ever_is_a_flood() {
        let mut classifier = classifier(&[]);
        let line = GuestMessage::Log { text: "x".repeat(1 << 20) };
        for _ in 0..32 {
            assert!(classifier.handle_message(&line, Duration::ZERO));
            assert!(!classifier.is_decided());
        }
        assert!(!classifier.handle_message(&GuestMessage::Log { text: "x".to_owned() }, Duration::ZERO));
        assert!(classifier.is_flood());
    }

    #[test]
    fn the_death_of_the_kernel_has_precedence() {
        let mut dead = classifier(DONE);
        dead.stop_asked = true;
        dead.decide(EndReason::PhaseTimeout { seconds: 1 });
        dead.take_incident(&incident(KernelIncidentKind::Warning, "WARNING: x"));
        dead.take_incident(&incident(KernelIncidentKind::Oops, "Oops [#1]"));
        dead.take_incident(&incident(KernelIncidentKind::Panic, "Kernel panic - not syncing: Fatal exception"));
        let full = KernelIncident {
            details: vec!["epc : f+0x1/0x2".to_owned()],
            ..incident(KernelIncidentKind::Oops, "Oops [#1]")
        };
        let reason = dead.reason(std::slice::from_ref(&full), &[], &exited(0));
        assert_eq!(reason, EndReason::KernelDied { incident: Box::new(full) }, "the first sign, with its details");
    }

    #[test]
    fn a_bug_that_does_not_kill_is_not_a_death() {
        let mut limping = classifier(DONE);
        limping.take_incident(&incident(KernelIncidentKind::Bug, "BUG: scheduling while atomic"));
        assert!(!limping.is_dead());
        assert_eq!(limping.reason(&[], &[], &exited(0)), EndReason::Done);
        limping.panicked();
        assert!(matches!(limping.reason(&[], &[], &exited(0)), EndReason::KernelDied { .. }));
    }

    #[test]
    fn messages_of_a_guest_about_its_end_are_bounded() {
        let long = "x".repeat(1 << 20);
        let failed = classifier(&[GuestMessage::Failed { message: long.clone() }]);
        let EndReason::AgentFailed { message } = failed.reason(&[], &[], &exited(0)) else { panic!("another end") };
        assert_eq!(message.len(), MAX_MESSAGE);
        let unsound = classifier(&[GuestMessage::Unsound { run: "r".to_owned(), differences: vec![long; 100] }]);
        let EndReason::Unsound { differences, .. } = unsound.reason(&[], &[], &exited(0)) else {
            panic!("another end")
        };
        assert_eq!((differences.len(), differences[0].len()), (MAX_DIFFERENCES, MAX_MESSAGE));
    }

    #[test]
    fn the_first_decision_counts_and_a_stop_is_no_failure() {
        let mut decision = classifier(&[]);
        decision.decide(decision.overdue());
        decision.decide(EndReason::Reset);
        assert_eq!(decision.reason(&[], &[], &exited(0)), EndReason::BootTimeout { seconds: 60 });

        let failed = GuestMessage::Failed { message: "mount".to_owned() };
        let mut stopped = classifier(std::slice::from_ref(&failed));
        assert_eq!(stopped.reason(&[], &[], &exited(0)), EndReason::AgentFailed { message: "mount".to_owned() });
        stopped.stop_asked = true;
        assert_eq!(stopped.reason(&[], &[], &exited(0)), EndReason::Stopped);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names the failure that the ending of a guest or an incident on its console means.

use bpfassay_protocol::message::Phase;
use bpfassay_results::{FailureKind, RunFailure};
use bpfassay_vm::{EndReason, GuestEnding, KernelIncident, KernelIncidentKind};

/// Highest number of lines that are kept with a failure.
const MAX_EXCERPT: usize = 12;

/// Line in the failure of a guest that wrote nothing at all. Nothing of its kernel ran, and a
/// repetition would not change that.
const SILENT: &str = "its console stayed empty";

/// Returns the failure that `ending` means for the run in flight. `log` is the console log,
/// relative to the results directory.
pub(crate) fn of_ending(ending: &GuestEnding, log: &str) -> RunFailure {
    let kind = match &ending.reason {
        EndReason::KernelDied { incident } => of_incident_kind(incident.kind),
        EndReason::AgentFailed { .. } => FailureKind::Agent,
        EndReason::Unsound { .. } => FailureKind::Unsound,
        reason if is_of_host(reason) => FailureKind::Host,
        EndReason::Done
        | EndReason::Stopped
        | EndReason::PoweredOffEarly
        | EndReason::Reset
        | EndReason::QemuStopped { .. }
        | EndReason::QemuSuspended
        | EndReason::QemuExited { .. } => FailureKind::EarlyExit,
        EndReason::BootTimeout { .. } => FailureKind::BootTimeout,
        EndReason::PhaseTimeout { .. } | EndReason::TooLong { .. } | EndReason::ShutdownTimeout { .. } => ending
            .incidents
            .iter()
            .map(|incident| of_incident_kind(incident.kind))
            .find(|kind| matches!(kind, FailureKind::RcuStall | FailureKind::Lockup | FailureKind::HungTask))
            .unwrap_or(if matches!(ending.reason, EndReason::ShutdownTimeout { .. }) {
                FailureKind::ShutdownTimeout
            } else {
                FailureKind::PhaseTimeout
            }),
        EndReason::ProtocolError { .. } | EndReason::Flood { .. } => FailureKind::ProtocolError,
        EndReason::ProtocolVersion { .. } => FailureKind::ProtocolVersion,
    };
    let mut excerpt = vec![ending.to_string()];
    excerpt.extend(ending.incidents.iter().flat_map(lines));
    // The agent's own statement needs no console lines, which can be about anything.
    let is_stated = matches!(ending.reason, EndReason::Unsound { .. } | EndReason::AgentFailed { .. });
    if excerpt.len() == 1 && !is_stated {
        // The kernel reported nothing, so the end of the console is all that is known.
        excerpt.extend(ending.console_tail.iter().rev().take(4).rev().cloned());
    }
    let is_empty = ending.console_tail.is_empty() && ending.log_incomplete.is_none();
    if kind == FailureKind::BootTimeout && is_empty {
        excerpt.push(SILENT.to_owned());
    }
    excerpt.dedup();
    excerpt.truncate(MAX_EXCERPT);
    RunFailure { kind, phase: Some(ending.phase), excerpt, log: Some(log.to_owned()), after: None }
}

/// Returns whether the guest wrote nothing at all until its boot timeout.
pub(crate) fn is_silent(failure: &RunFailure) -> bool {
    failure.kind == FailureKind::BootTimeout && failure.excerpt.iter().skip(1).any(|line| line == SILENT)
}

/// Returns whether a guest that ended for `reason` ended because of the host. QEMU ended by itself,
/// was ended or stopped by a signal, or stopped the guest because the host lacked something. Or the
/// guest was not supervised any more.
pub(crate) fn is_of_host(reason: &EndReason) -> bool {
    match reason {
        EndReason::QemuExited { .. } | EndReason::QemuSuspended | EndReason::Stopped => true,
        // QEMU also stops a guest that reports its panic.
        EndReason::QemuStopped { state } => state != "guest-panicked",
        _ => false,
    }
}

/// Returns the failure of a host that cannot start a guest.
pub fn of_host(message: String) -> RunFailure {
    RunFailure { kind: FailureKind::Host, phase: None, excerpt: vec![message], log: None, after: None }
}

/// Returns the failure of a guest that violated the protocol.
pub(crate) fn of_protocol_error(message: String, phase: Option<Phase>, log: &str) -> RunFailure {
    RunFailure {
        kind: FailureKind::ProtocolError,
        phase,
        excerpt: vec![message],
        log: Some(log.to_owned()),
        after: None,
    }
}

/// Returns the failure that `incident` means. The kernel reported it in `phase` and continues.
pub(crate) fn of_incident(incident: &KernelIncident, phase: Phase, log: &str) -> RunFailure {
    let mut excerpt: Vec<String> = lines(incident).collect();
    excerpt.truncate(MAX_EXCERPT);
    let kind = of_incident_kind(incident.kind);
    RunFailure { kind, phase: Some(phase), excerpt, log: Some(log.to_owned()), after: None }
}

/// Returns the latest time at which `incident` began, in milliseconds since the boot began. It was
/// reported at `at_ms`.
///
/// The report has the duration by the guest's clock, whose speed differs from the host's under the
/// instruction clock. If the same fraction of the guest's life is shorter, it is used instead. The
/// result is `at_ms` if the duration or the time stamp is unknown.
pub(crate) fn began_ms(incident: &KernelIncident, at_ms: u64) -> u64 {
    let (Some(lasted), Some(time_us)) = (incident.lasted(), incident.time_us) else { return at_ms };
    let ms = lasted.as_millis();
    let part = ms.saturating_mul(1000).saturating_mul(u128::from(at_ms)).checked_div(u128::from(time_us));
    let least = part.map_or(ms, |part| part.min(ms));
    at_ms.saturating_sub(u64::try_from(least).unwrap_or(u64::MAX))
}

fn lines(incident: &KernelIncident) -> impl Iterator<Item = String> + '_ {
    std::iter::once(incident.line.clone()).chain(incident.details.iter().cloned())
}

const fn of_incident_kind(kind: KernelIncidentKind) -> FailureKind {
    match kind {
        KernelIncidentKind::Panic => FailureKind::Panic,
        KernelIncidentKind::Oops => FailureKind::Oops,
        KernelIncidentKind::Bug | KernelIncidentKind::Warning => FailureKind::Bug,
        KernelIncidentKind::RcuStall => FailureKind::RcuStall,
        KernelIncidentKind::SoftLockup | KernelIncidentKind::HardLockup => FailureKind::Lockup,
        KernelIncidentKind::HungTask => FailureKind::HungTask,
        KernelIncidentKind::OutOfMemory => FailureKind::OutOfMemory,
        KernelIncidentKind::Initramfs => FailureKind::Initramfs,
        KernelIncidentKind::NfsStall => FailureKind::NfsStall,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incident(kind: KernelIncidentKind, line: &str) -> KernelIncident {
        KernelIncident { kind, line: line.to_owned(), time_us: None, details: vec!["RIP: 0010:f+0x1/0x2".to_owned()] }
    }

    fn ending(reason: EndReason, incidents: Vec<KernelIncident>) -> GuestEnding {
        GuestEnding {
            reason,
            phase: Phase::Workload,
            run: Some("r".to_owned()),
            lived_ms: 5000,
            incidents,
            console_tail: vec!["the output tail".to_owned()],
            qemu_stderr: String::new(),
            log_incomplete: None,
        }
    }

    #[test]
    fn a_dead_kernel_is_named_after_what_killed_it() {
        let panic = incident(KernelIncidentKind::Panic, "Kernel panic - not syncing: sysrq triggered crash");
        let failure =
            of_ending(&ending(EndReason::KernelDied { incident: Box::new(panic.clone()) }, vec![panic]), "logs/b.log");
        assert_eq!((failure.kind, failure.phase), (FailureKind::Panic, Some(Phase::Workload)));
        assert!(failure.excerpt[0].contains("sysrq triggered crash"), "{:?}", failure.excerpt);
        assert!(failure.excerpt.iter().any(|line| line.starts_with("RIP:")));
    }

    #[test]
    fn a_hang_is_named_after_the_stall_that_the_kernel_reported() {
        let stall = incident(KernelIncidentKind::RcuStall, "rcu: INFO: rcu_preempt self-detected stall on CPU");
        assert_eq!(
            of_ending(&ending(EndReason::PhaseTimeout { seconds: 9 }, vec![stall]), "l").kind,
            FailureKind::RcuStall
        );
        let silent = of_ending(&ending(EndReason::PhaseTimeout { seconds: 9 }, Vec::new()), "l");
        assert_eq!(silent.kind, FailureKind::PhaseTimeout);
        assert_eq!(silent.excerpt.last().map(String::as_str), Some("the output tail"));
    }

    #[test]
    fn what_the_agent_states_has_no_lines_of_the_console_beside_it() {
        for reason in [
            EndReason::Unsound { run: "r".to_owned(), differences: vec!["a program is left".to_owned()] },
            EndReason::AgentFailed { message: "it gave up".to_owned() },
        ] {
            let failure = of_ending(&ending(reason, Vec::new()), "l");
            assert_eq!(failure.excerpt.len(), 1, "{:?}", failure.excerpt);
        }
    }

    #[test]
    fn a_guest_that_wrote_nothing_until_its_time_was_over_is_silent() {
        let timeout = || EndReason::BootTimeout { seconds: 60 };
        let with = |tail: &[&str], log_incomplete: Option<&str>, reason| {
            let console_tail = tail.iter().map(|&line| line.to_owned()).collect();
            let log_incomplete = log_incomplete.map(str::to_owned);
            of_ending(&GuestEnding { console_tail, log_incomplete, ..ending(reason, Vec::new()) }, "l")
        };
        let silent = with(&[], None, timeout());
        assert!(is_silent(&silent) && silent.excerpt.len() == 2, "{:?}", silent.excerpt);
        assert!(!is_silent(&with(&["Linux version 6.12"], None, timeout())));
        // Text that the guest writes is not a sign of silence, nor is a console that was not read.
        assert!(!is_silent(&with(&["its console stayed empty?"], None, timeout())));
        assert!(!is_silent(&with(&[], Some("the console was not read to its end"), timeout())));
        assert!(!is_silent(&with(&[], None, EndReason::PhaseTimeout { seconds: 9 })));
    }

    #[test]
    fn a_qemu_that_ends_is_the_hosts_affair_and_a_guest_that_ends_is_its_own() {
        let kind = |reason| of_ending(&ending(reason, Vec::new()), "l").kind;
        assert_eq!(kind(EndReason::QemuExited { status: "signal: 9 (SIGKILL)".to_owned() }), FailureKind::Host);
        assert_eq!(kind(EndReason::QemuStopped { state: "io-error".to_owned() }), FailureKind::Host);
        assert_eq!(kind(EndReason::QemuStopped { state: "guest-panicked".to_owned() }), FailureKind::EarlyExit);
        assert_eq!(kind(EndReason::PoweredOffEarly), FailureKind::EarlyExit);
        assert_eq!(kind(EndReason::Reset), FailureKind::EarlyExit);
    }

    #[test]
    fn a_stall_began_before_its_report_by_the_clock_of_the_guest() {
        let reported = |time_us| {
            let line = "watchdog: BUG: soft lockup - CPU#0 stuck for 21s! [tool:77]";
            KernelIncident { time_us, ..incident(KernelIncidentKind::SoftLockup, line) }
        };
        let seconds = |seconds: u64| Some(seconds * 1_000_000);
        // The guest's clock has the host's speed, after 2 s of firmware.
        assert_eq!(began_ms(&reported(seconds(40)), 42_000), 22_000);
        // The guest's clock is ten times as fast, and ten times as slow.
        assert_eq!(began_ms(&reported(seconds(40)), 4000), 2000);
        assert_eq!(began_ms(&reported(seconds(40)), 400_000), 380_000);
        // The time stamp is missing or impossible.
        for time_us in [None, seconds(5), Some(0)] {
            assert_eq!(began_ms(&reported(time_us), 42_000), 42_000);
        }
        assert_eq!(began_ms(&incident(KernelIncidentKind::HardLockup, "hard LOCKUP"), 42_000), 42_000);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let many = (0..100).map(|i| incident(KernelIncidentKind::Warning, &format!("WARNING {i}"))).collect();
        assert_eq!(of_ending(&ending(EndReason::Reset, many), "l").excerpt.len(), MAX_EXCERPT);
    }
}

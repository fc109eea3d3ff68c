//! Which named failure the ending of a guest, or a trouble on its console, is.

use bpfassay_report::{FailureKind, RunFailure};
use bpfassay_vm::{EndReason, Ending, Trouble, TroubleKind};

/// Most lines kept with a failure.
const MAX_TELLING: usize = 12;

/// The failure that `ending` means for the run in flight. `log` is the console log, relative to the results directory.
#[must_use]
pub fn of_ending(ending: &Ending, log: &str) -> RunFailure {
    let kind = match &ending.reason {
        EndReason::KernelDied { trouble } => of_trouble_kind(trouble.kind),
        EndReason::AgentFailed { .. } => FailureKind::Agent,
        EndReason::Unsound { .. } => FailureKind::Unsound,
        EndReason::Done
        | EndReason::Stopped
        | EndReason::PoweredOffEarly
        | EndReason::Reset
        | EndReason::QemuStopped { .. }
        | EndReason::QemuExited { .. } => FailureKind::EarlyExit,
        EndReason::Silent { .. } => FailureKind::Silent,
        EndReason::Hung { .. } | EndReason::TooLong { .. } | EndReason::LingeredOn { .. } => ending
            .troubles
            .iter()
            .map(|trouble| of_trouble_kind(trouble.kind))
            .find(|kind| matches!(kind, FailureKind::RcuStall | FailureKind::Lockup | FailureKind::HungTask))
            .unwrap_or(FailureKind::Deadline),
        EndReason::Garbage { .. } | EndReason::Flood { .. } => FailureKind::Garbage,
        EndReason::ProtocolVersion { .. } => FailureKind::ProtocolVersion,
    };
    let mut telling = vec![ending.to_string()];
    telling.extend(ending.troubles.iter().flat_map(lines));
    if telling.len() == 1 {
        // The kernel reported nothing: the last it said is all there is to go by.
        telling.extend(ending.console_tail.iter().rev().take(4).rev().cloned());
    }
    telling.dedup();
    telling.truncate(MAX_TELLING);
    RunFailure { kind, phase: Some(ending.phase), telling, log: Some(log.to_owned()) }
}

/// The failure of a run that was measured while the kernel reported `trouble`.
#[must_use]
pub fn of_trouble(trouble: &Trouble, log: &str) -> RunFailure {
    let mut telling: Vec<String> = lines(trouble).collect();
    telling.truncate(MAX_TELLING);
    RunFailure { kind: of_trouble_kind(trouble.kind), phase: None, telling, log: Some(log.to_owned()) }
}

fn lines(trouble: &Trouble) -> impl Iterator<Item = String> + '_ {
    std::iter::once(trouble.line.clone()).chain(trouble.details.iter().cloned())
}

const fn of_trouble_kind(kind: TroubleKind) -> FailureKind {
    match kind {
        TroubleKind::Panic => FailureKind::Panic,
        TroubleKind::Oops => FailureKind::Oops,
        TroubleKind::Bug | TroubleKind::Warning => FailureKind::Bug,
        TroubleKind::RcuStall => FailureKind::RcuStall,
        TroubleKind::SoftLockup | TroubleKind::HardLockup => FailureKind::Lockup,
        TroubleKind::HungTask => FailureKind::HungTask,
        TroubleKind::OutOfMemory => FailureKind::OutOfMemory,
        TroubleKind::Initramfs => FailureKind::Initramfs,
        TroubleKind::NfsStall => FailureKind::NfsStall,
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::message::Phase;

    use super::*;

    fn trouble(kind: TroubleKind, line: &str) -> Trouble {
        Trouble { kind, line: line.to_owned(), time_us: None, details: vec!["RIP: 0010:f+0x1/0x2".to_owned()] }
    }

    fn ending(reason: EndReason, troubles: Vec<Trouble>) -> Ending {
        Ending {
            reason,
            phase: Phase::Workload,
            run: Some("r".to_owned()),
            lived_ms: 5000,
            troubles,
            console_tail: vec!["last words".to_owned()],
            qemu_stderr: String::new(),
            log_incomplete: None,
        }
    }

    #[test]
    fn a_dead_kernel_is_named_after_what_killed_it() {
        let panic = trouble(TroubleKind::Panic, "Kernel panic - not syncing: sysrq triggered crash");
        let failure =
            of_ending(&ending(EndReason::KernelDied { trouble: Box::new(panic.clone()) }, vec![panic]), "logs/b.log");
        assert_eq!((failure.kind, failure.phase), (FailureKind::Panic, Some(Phase::Workload)));
        assert!(failure.telling[0].contains("sysrq triggered crash"), "{:?}", failure.telling);
        assert!(failure.telling.iter().any(|line| line.starts_with("RIP:")));
    }

    #[test]
    fn a_hang_is_named_after_the_stall_that_the_kernel_reported() {
        let stall = trouble(TroubleKind::RcuStall, "rcu: INFO: rcu_preempt self-detected stall on CPU");
        assert_eq!(of_ending(&ending(EndReason::Hung { seconds: 9 }, vec![stall]), "l").kind, FailureKind::RcuStall);
        let silent = of_ending(&ending(EndReason::Hung { seconds: 9 }, Vec::new()), "l");
        assert_eq!(silent.kind, FailureKind::Deadline);
        assert_eq!(silent.telling.last().map(String::as_str), Some("last words"));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let many = (0..100).map(|i| trouble(TroubleKind::Warning, &format!("WARNING {i}"))).collect();
        assert_eq!(of_ending(&ending(EndReason::Reset, many), "l").telling.len(), MAX_TELLING);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates refusals from aya's errors.

use std::{error::Error, io};

use ::aya::{EbpfError, maps::MapError, programs::ProgramError};
use bpfassay_protocol::tracer_messages::{Refusal, Step};

use crate::kernel::verifier::{reason, shorten};

/// Creates a refusal from `error`, with the messages of aya and the verifier.
pub(super) fn refuse(step: Step, program: Option<&str>, error: &(dyn Error + 'static)) -> Refusal {
    let log = match error.downcast_ref() {
        Some(ProgramError::LoadError { verifier_log, .. }) => Some(verifier_log.to_string()),
        _ => None,
    };
    let causes = causes(error);
    Refusal {
        program: program.map(str::to_owned),
        errno: number(error),
        verifier: log.and_then(|log| {
            let lines: Vec<&str> = log.lines().collect();
            reason(&lines).map(shorten)
        }),
        ..Refusal::new(
            step,
            shorten(&program.map_or(causes.clone(), |program| format!("program `{program}`: {causes}"))),
        )
    }
}

/// Returns the step in which preparing an object fails with `error`. The first calls to the kernel
/// create maps.
pub(super) fn step_of(error: &EbpfError) -> Step {
    match error {
        EbpfError::MapError(MapError::CreateError { .. } | MapError::SyscallError(_)) => Step::Load,
        _ => Step::Open,
    }
}

/// Returns `error` and its causes on one line, without the verifier's log, which aya puts into the
/// message.
fn causes(error: &(dyn Error + 'static)) -> String {
    if let Some(ProgramError::LoadError { io_error, .. }) = error.downcast_ref() {
        return format!("BPF_PROG_LOAD failed: {io_error}");
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let cause_text = error.to_string();
        // Some errors repeat their cause.
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        cause = error.source();
    }
    text
}

/// Returns the kernel's error number, anywhere among the causes.
fn number(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut next = Some(error);
    while let Some(error) = next {
        // aya displays such an error as its source, and returns the source's causes as its own. The
        // error itself is not among them.
        let system = match error.downcast_ref() {
            Some(ProgramError::IOError(error)) => Some(error),
            _ => error.downcast_ref::<io::Error>(),
        };
        if let Some(number) = system.and_then(io::Error::raw_os_error) {
            return Some(number);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use ::aya::sys::SyscallError;

    use super::*;

    #[test]
    fn the_kernels_number_is_found_among_ayas_causes() {
        let io_error = io::Error::from_raw_os_error(524);
        let error = ProgramError::SyscallError(SyscallError { call: "bpf_raw_tracepoint_open", io_error });
        let refusal = refuse(Step::Attach, Some("fexit_vfs_read"), &error);
        assert_eq!(refusal.errno, Some(524));
        assert_eq!(refusal.program.as_deref(), Some("fexit_vfs_read"));
        assert!(
            refusal.message.starts_with("program `fexit_vfs_read`: `bpf_raw_tracepoint_open` failed"),
            "{refusal:?}"
        );
        assert!(refusal.message.ends_with("524 (os error 524)"), "{refusal:?}");
        assert_eq!(refusal.verifier, None);
        let error = ProgramError::IOError(io::Error::from_raw_os_error(22));
        assert_eq!(refuse(Step::Attach, None, &error).errno, Some(22));
    }

    #[test]
    fn a_refusal_not_from_the_kernel_has_no_number() {
        let refusal = refuse(Step::Open, None, &::aya::BtfError::UnknownBtfTypeName { type_name: "vfs_none".into() });
        assert_eq!(refusal.errno, None);
        assert!(refusal.message.contains("vfs_none"), "{refusal:?}");
    }
}

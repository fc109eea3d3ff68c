// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attached programs, whichever library attached them.

use std::{
    any::Any,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use bpfassay_bpf::{RunTime, program_info};
use bpfassay_protocol::{finding_name::Finding, tracer_messages::Program};

/// One attached program.
#[derive(Debug)]
pub(crate) struct Hooked {
    /// Name of the program in the object.
    pub(crate) program: String,
    /// The function, system call or symbol to which the program is attached.
    pub(crate) function: String,
    /// The same, with the offset if it is not the entry.
    pub(crate) attached_to: String,
    pub(crate) kind: AttachKind,
    /// The program; a duplicate of the loader's descriptor.
    pub(crate) program_fd: OwnedFd,
    /// The link or perf event, if it reports misses; a duplicate, too.
    pub(crate) link_fd: Option<OwnedFd>,
    /// The kernel's counts of the program before it was attached.
    pub(crate) earlier: ProgramCounts,
}

/// The kernel's counts for a program, as opposed to its links. The counts continue when the program
/// is attached again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProgramCounts {
    /// `None` if this kernel does not count them.
    pub(crate) recursion_misses: Option<u64>,
    pub(crate) run_time: RunTime,
}

impl ProgramCounts {
    fn since(self, earlier: Self) -> Self {
        Self {
            recursion_misses: self
                .recursion_misses
                .map(|now| now.saturating_sub(earlier.recursion_misses.unwrap_or(0))),
            run_time: RunTime {
                runs: self.run_time.runs.saturating_sub(earlier.run_time.runs),
                nanoseconds: self.run_time.nanoseconds.saturating_sub(earlier.run_time.nanoseconds),
            },
        }
    }
}

/// The result of attaching.
#[derive(Debug, Default)]
pub(crate) struct AttachedPrograms {
    pub(crate) hooked: Vec<Hooked>,
    /// Links, which detach when they are dropped.
    pub(crate) links: Vec<Box<dyn Any>>,
    /// Functions that could not be hooked and are not counted.
    pub(crate) findings: Vec<Finding>,
}

/// How a program was attached, as far as it matters for counting misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttachKind {
    /// A separate kprobe or kretprobe.
    Kprobe(KprobeMode),
    Trampoline,
    /// fprobe, through a multi link.
    KprobeMulti,
    /// Tracepoint through a perf event.
    Tracepoint,
    RawTracepoint,
    /// uprobe or uretprobe.
    Uprobe,
}

/// How a kprobe is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KprobeMode {
    /// Made by the perf event source `kprobe`. Nothing remains when the process dies, and tracefs
    /// is not needed.
    Perf,
    /// Made by a line in tracefs' `kprobe_events`, as before 4.17. Misses are counted in
    /// `kprobe_profile`. A killed process leaves the line behind, which affects only that file.
    Tracefs,
}

impl Hooked {
    pub(crate) fn program_fd(&self) -> BorrowedFd<'_> {
        self.program_fd.as_fd()
    }

    /// Returns the kernel's counts of the program since it was attached.
    ///
    /// # Errors
    /// The kernel's error, if it does not describe the program.
    pub(crate) fn counted(&self) -> io::Result<ProgramCounts> {
        Ok(self.counted_ever()?.since(self.earlier))
    }

    /// Returns the kernel's counts of the program since it was loaded.
    ///
    /// # Errors
    /// The kernel's error, if it does not describe the program.
    pub(crate) fn counted_ever(&self) -> io::Result<ProgramCounts> {
        let info = program_info(self.program_fd())?;
        Ok(ProgramCounts { recursion_misses: info.recursion_misses, run_time: info.run_time.unwrap_or_default() })
    }

    /// Returns the kernel's information about the program.
    ///
    /// # Errors
    /// The kernel's error, if it does not describe the program.
    pub(crate) fn describe(&self) -> io::Result<Program> {
        let info = program_info(self.program_fd())?;
        Ok(Program {
            name: self.program.clone(),
            attached_to: self.attached_to.clone(),
            jited_bytes: info.jited_bytes,
            instructions: info.instructions,
            verified_instructions: info.verified_instructions,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_from_before_attaching_are_subtracted() {
        let now = |recursion_misses, runs| ProgramCounts {
            recursion_misses,
            run_time: RunTime { runs, nanoseconds: 10 * runs },
        };
        assert_eq!(now(Some(7), 3).since(now(Some(5), 1)), now(Some(2), 2));
        assert_eq!(now(Some(7), 3).since(ProgramCounts::default()), now(Some(7), 3));
        assert_eq!(now(None, 3).since(now(None, 3)), now(None, 0));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! How programs are attached, by their section names.
//!
//! A probe is a C source `src/bpf/NAME.bpf.c` whose `SEC("KIND/TARGET")` names contain the targets.
//! A new way of attaching is a new variant of [`Attachment`].

use bpfassay_protocol::Arch;

/// How a program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attachment {
    /// kprobe at the entry of a function, through a perf event.
    Kprobe,
    /// kretprobe at the function's return.
    Kretprobe,
    /// fprobe at the entry, through a multi link.
    KprobeMulti,
    /// fprobe at the return.
    KretprobeMulti,
    /// BPF trampoline at the entry or exit of a function.
    Trampoline,
    /// Tracepoints of system calls, one per call, at entry or exit.
    Syscalls(CallEnd),
    /// One tracepoint, by subsystem and name.
    Tracepoint,
    RawTracepoint,
    /// Iterator, which is created and dropped at each reading.
    Iterator,
    /// uprobe on those functions of a file that [`bpfassay_tracer_common::functions`] lists under
    /// the target.
    Uprobe,
    /// uretprobe on those functions that return the kind of value in the target.
    Uretprobe,
}

/// The end of a system call at which a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// Entry of calls of which at most the first argument is needed.
    Enter,
    /// Entry of calls of which up to three arguments are needed.
    Enter3,
    Exit,
}

impl CallEnd {
    /// Returns whether a program at this end handles the system call `name`.
    pub(crate) fn has(self, name: &str) -> bool {
        match self {
            Self::Enter => !THREE_ARGUMENTS.contains(&name),
            Self::Enter3 => THREE_ARGUMENTS.contains(&name),
            Self::Exit => true,
        }
    }
}

/// System calls of which more than the first argument is read.
const THREE_ARGUMENTS: [&str; 3] = ["mknod", "mknodat", "unlinkat"];

/// Offset of a kprobe if the entry of a function is refused, in bytes.
pub(crate) const BEHIND_FTRACE_SITE: Option<usize> = Arch::BUILT_FOR.facts().behind_ftrace_site;

/// Functions that every configuration needs. If a function is missing, the configuration is
/// refused. Other functions that a kernel lacks are not counted, which is reported.
pub(crate) const REQUIRED: [&str; 2] = ["vfs_read", "vfs_write"];

/// System calls that are counted, by the names of their tracepoints. Some architectures lack some
/// of them.
pub(crate) const SYSCALLS: [&str; 26] = [
    "read",
    "pread64",
    "write",
    "pwrite64",
    "readv",
    "preadv",
    "preadv2",
    "writev",
    "pwritev",
    "pwritev2",
    "open",
    "openat",
    "openat2",
    "creat",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "unlink",
    "unlinkat",
    "rmdir",
    "rename",
    "renameat",
    "renameat2",
    "fsync",
    "fdatasync",
];

/// Returns the program of which `program` is a copy, and the number of the copy, from 2. `None` for
/// the first copy. Copies are called `NAME_2` and so on, or `NAME__2` by the loader aya. They
/// attach to the same function, for the calls that the first copy misses.
pub(crate) fn copy_of(program: &str) -> Option<(&str, u32)> {
    let (name, number) = program.rsplit_once('_')?;
    Some((name.trim_end_matches('_'), number.parse().ok()?))
}

/// Returns how the program in `section` is attached, and to what.
pub(crate) fn attachment(section: &str) -> Option<(Attachment, &str)> {
    let (kind, target) = section.split_once('/').filter(|(_, target)| !target.is_empty())?;
    let attachment = match (kind, target) {
        ("kprobe", _) => Attachment::Kprobe,
        ("kretprobe", _) => Attachment::Kretprobe,
        ("kprobe.multi", _) => Attachment::KprobeMulti,
        ("kretprobe.multi", _) => Attachment::KretprobeMulti,
        ("fentry" | "fexit", _) => Attachment::Trampoline,
        ("tracepoint", "enter") => Attachment::Syscalls(CallEnd::Enter),
        ("tracepoint", "enter_3") => Attachment::Syscalls(CallEnd::Enter3),
        ("tracepoint", "exit") => Attachment::Syscalls(CallEnd::Exit),
        ("tracepoint", _) if target.contains('/') => Attachment::Tracepoint,
        ("iter", _) => Attachment::Iterator,
        ("raw_tracepoint" | "raw_tp", _) => Attachment::RawTracepoint,
        ("uprobe", _) => Attachment::Uprobe,
        ("uretprobe", _) => Attachment::Uretprobe,
        _ => return None,
    };
    Some((attachment, target))
}

#[cfg(test)]
mod tests {
    use bpfassay_tracer_common::functions;
    use object::{Object as _, ObjectSection as _};

    use super::*;
    use crate::loader::plan::object_files;

    #[test]
    fn copies_are_known_by_their_names() {
        assert_eq!(copy_of("read_exit"), None);
        assert_eq!(copy_of("read_exit_2"), Some(("read_exit", 2)));
        assert_eq!(copy_of("fexit__vfs_read__3"), Some(("fexit__vfs_read", 3)));
        assert_eq!(copy_of("fexit__do_filp_open__mark_3"), Some(("fexit__do_filp_open__mark", 3)));
    }

    #[test]
    fn every_program_of_every_object_can_be_attached() {
        for &probe in bpfassay_protocol::probe::Probe::ALL {
            for &map in bpfassay_protocol::probe::MapLayout::ALL {
                let Some(found) = object_files::find(probe, map) else { continue };
                let file = object::File::parse(found.elf).unwrap();
                let mut programs = 0;
                for section in file.sections().filter(|section| section.kind() == object::SectionKind::Text) {
                    let name = section.name().unwrap();
                    if section.size() == 0 || name == ".text" {
                        continue;
                    }
                    let (attachment, target) = attachment(name).unwrap_or_else(|| panic!("{probe}+{map}: {name}"));
                    if attachment == Attachment::Uprobe {
                        let mut functions = functions::C_LIBRARY.iter().chain(functions::MPI_IO);
                        assert!(functions.any(|function| function.entry == target), "{name}");
                    }
                    programs += 1;
                }
                assert!(programs >= 2, "{probe}+{map}");
            }
        }
    }
}

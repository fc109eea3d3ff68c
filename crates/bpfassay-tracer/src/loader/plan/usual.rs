// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel functions that the bundled programs hook. A tracer that looks up one of these functions
//! in the kernel's tables looks up all. It stores the results for later probe configurations in the
//! same boot (`kernel::kept_facts`).

use bpfassay_protocol::Arch;

/// Functions by their names in the programs, except system calls and functions of [`NEWER`].
const FUNCTIONS: [&str; 23] = [
    "aio_complete_rw",
    "aio_read",
    "aio_write",
    "do_dentry_open",
    "do_page_mkwrite",
    "do_set_pte",
    "do_splice",
    "do_splice_direct",
    "mnt_want_write",
    "set_pte_range",
    "splice_file_to_pipe",
    "tcp_recvmsg",
    "tcp_sendmsg",
    "vfs_copy_file_range",
    "vfs_create",
    "vfs_mkdir",
    "vfs_read",
    "vfs_readv",
    "vfs_rename",
    "vfs_rmdir",
    "vfs_unlink",
    "vfs_write",
    "vfs_writev",
];

/// The name of a function in the programs and in kernels up to at least 6.12, and its name in 7.2
/// (fs/namei.c). The arguments that the programs read are the same.
pub(super) const NEWER: [(&str, &str); 6] = [
    ("do_filp_open", "do_file_open"),
    ("do_mkdirat", "filename_mkdirat"),
    ("do_mknodat", "filename_mknodat"),
    ("do_unlinkat", "filename_unlinkat"),
    ("do_rmdir", "filename_rmdir"),
    ("do_renameat2", "filename_renameat2"),
];

/// System calls whose functions are hooked. The programs call them `sys_NAME`.
pub(super) const SYSCALLS: [&str; 2] = ["sys_fsync", "sys_fdatasync"];

/// Prefix of the functions of system calls in the kernel (arch/*/include/asm/syscall_wrapper.h).
pub(crate) const SYSCALL_PREFIX: &str = Arch::BUILT_FOR.facts().syscall_prefix;

/// Returns all functions, by their names in kernels.
pub(crate) fn functions() -> Vec<String> {
    let renamed = NEWER.into_iter().flat_map(|(name, newer)| [name, newer]);
    let syscalls = SYSCALLS.into_iter().map(|name| format!("{SYSCALL_PREFIX}{name}"));
    FUNCTIONS.into_iter().chain(renamed).map(str::to_owned).chain(syscalls).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bpfassay_protocol::{
        probe::{MapLayout, Probe},
        program_set::ProgramSet,
    };
    use object::{Object as _, ObjectSection as _};

    use super::*;
    use crate::loader::plan::{
        object_files,
        probes::{self, Attachment},
        renamed,
        tracer_options::TracerOptions,
    };

    #[test]
    fn exactly_the_functions_that_bundled_programs_hook_are_listed() {
        let mut hooked: BTreeSet<String> = BTreeSet::new();
        let probes = Probe::ALL.iter().flat_map(|&probe| MapLayout::ALL.iter().map(move |&map| (probe, map)));
        let objects = probes.filter_map(|(probe, map)| object_files::find(probe, map)).map(|object| object.elf);
        let options = renamed::for_this_kernel(&TracerOptions::default());
        for elf in objects.chain(ProgramSet::ALL.iter().filter_map(|&set| object_files::of_set(set))) {
            let object = object::read::elf::ElfFile64::<object::Endianness>::parse(elf).unwrap();
            for section in object.sections().filter_map(|section| section.name().ok()) {
                if let Some((
                    Attachment::Kprobe
                    | Attachment::Kretprobe
                    | Attachment::KprobeMulti
                    | Attachment::KretprobeMulti
                    | Attachment::Trampoline,
                    function,
                )) = probes::attachment(section)
                {
                    hooked.insert(options.function(function).to_owned());
                }
            }
        }
        let usual: BTreeSet<String> = functions().into_iter().collect();
        assert_eq!(hooked.difference(&usual).collect::<Vec<_>>(), Vec::<&String>::new());
        let unused: Vec<&str> = FUNCTIONS.into_iter().filter(|name| !hooked.contains(*name)).collect();
        assert_eq!(unused, Vec::<&str>::new());
        assert!(FUNCTIONS.is_sorted());
    }
}

// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Files by descriptor, and system calls that are hooked at their own functions. `files.h` of the C
//! programs explains why fsync and fdatasync are.

use aya_ebpf::{Global, helpers::generated::bpf_get_current_task};

use super::{
    count::Subject,
    kernel::{Address, Place, offset, read},
};

/// Whether the program is allowed to get the calling task; set by the loader. `files.h` lists the
/// exceptions.
#[unsafe(no_mangle)]
static TASK_KNOWN: Global<u64> = Global::new(1);

/// Returns the `struct file *` of a descriptor of the calling task; 0 if there is none.
#[inline(always)]
pub(super) fn file_of(descriptor: u64) -> Address {
    // SAFETY: takes no arguments.
    let task: Address = unsafe { bpf_get_current_task() };
    let table: Address = read(read::<Address>(task, offset!(task_files)), offset!(files_table));
    let descriptor = descriptor as u32;
    if descriptor >= read::<u32>(table, offset!(table_size)) {
        return 0;
    }
    read(read::<Address>(table, offset!(table_files)), descriptor as usize * size_of::<Address>())
}

/// Returns the location of a descriptor's file; unknown for a descriptor without a file.
#[inline(always)]
pub(super) fn place_of(descriptor: u64) -> Place {
    match file_of(descriptor) {
        0 => Place::NOWHERE,
        file => Place::of_file(file),
    }
}

/// Returns the subject of a system call whose first argument is a descriptor. `registers` is the
/// only argument of the call's function.
#[inline(always)]
pub(super) fn subject_of_syscall(registers: Address) -> Option<Subject> {
    // SAFETY: a global; volatile, because the value in this file is not the value at run time.
    let task_known = unsafe { (&raw const TASK_KNOWN).cast::<u64>().read_volatile() };
    let place =
        if task_known == 0 { Place::NOWHERE } else { place_of(read::<u64>(registers, offset!(syscall_argument_0))) };
    Subject::new(place)
}

/// Returns whether mknod makes a regular file: `S_IFMT` and `S_IFREG` (include/uapi/linux/stat.h).
#[inline(always)]
pub(super) fn is_regular(mode: u64) -> bool {
    matches!(mode & 0o170_000, 0 | 0o100_000)
}

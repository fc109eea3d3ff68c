// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Programs at function entry, by kprobe or by trampoline. They count what was requested, whatever
//! the call does afterwards, and cannot see errors.
//!
//! An open is seen where the file is first known: in `do_dentry_open`, which failed look-ups do not
//! reach.

#![expect(non_snake_case, reason = "two underscores separate the parts of a program's name")]

use aya_ebpf::{
    helpers::generated::bpf_probe_read_user,
    macros::{fentry, kprobe},
    programs::{FEntryContext, ProbeContext},
};
use bpfassay_tracer_common::Operation;

use super::{
    count::{Outcome, Subject, count},
    files::subject_of_syscall,
    kernel::{Address, Place},
    names,
    opened::is_created,
};

/// Arguments by number.
pub(super) trait Arguments {
    /// Returns argument `index`, from 0, which must be constant. Returns 0 if the argument is not
    /// in a register.
    fn argument(&self, index: usize) -> u64;

    /// Returns the location of the `struct file *` in argument 0.
    fn place(&self) -> Place;
}

impl Arguments for ProbeContext {
    #[inline(always)]
    fn argument(&self, index: usize) -> u64 {
        self.arg(index).unwrap_or(0)
    }

    #[inline(always)]
    fn place(&self) -> Place {
        Place::of_file(self.argument(0))
    }
}

impl Arguments for FEntryContext {
    #[inline(always)]
    fn argument(&self, index: usize) -> u64 {
        self.arg(index)
    }

    #[inline(always)]
    fn place(&self) -> Place {
        Place::of_typed_file(self.arg(0))
    }
}

/// Returns argument `index`, which is known at load time, so that a single case is left.
/// `black_box` makes the cases look different to the compiler. Otherwise the compiler would merge
/// them into one load at a computed offset, which the verifier forbids for a context.
#[inline(always)]
pub(super) fn argument_at(context: &impl Arguments, index: u8) -> u64 {
    match index {
        0 => core::hint::black_box(context.argument(0)),
        1 => core::hint::black_box(context.argument(1)),
        2 => core::hint::black_box(context.argument(2)),
        _ => 0,
    }
}

/// `UIO_MAXIOV` (include/uapi/linux/uio.h).
const MOST_VECTORS: u64 = 1024;

/// Returns the sum of the lengths in a vector of user space, as far as they can be read without a
/// page fault.
#[inline(always)]
fn requested(vector: Address, count: u64) -> u64 {
    let mut sum = 0u64;
    for index in 0..MOST_VECTORS {
        if index >= count {
            break;
        }
        let mut length = 0u64;
        // `struct iovec`: address and length.
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_user((&raw mut length).cast(), 8, (vector + index * 16 + 8) as *const _) };
        sum = sum.wrapping_add(length);
    }
    sum
}

#[inline(always)]
fn count_file(context: &impl Arguments, operation: Operation, bytes: u64) {
    if let Some(subject) = Subject::new(context.place()) {
        count(&subject, operation, Outcome::requested(bytes), 0);
    }
}

#[inline(always)]
fn count_fsync(context: &impl Arguments) {
    if let Some(subject) = subject_of_syscall(context.argument(0)) {
        count(&subject, Operation::Fsync, Outcome::requested(0), 0);
    }
}

#[inline(always)]
fn count_open(context: &impl Arguments) {
    count_file(context, Operation::Open, 0);
    if is_created(context.argument(0)) {
        count_file(context, Operation::Create, 0);
    }
}

#[inline(always)]
fn count_name(context: &impl Arguments, operation: Operation) {
    let prototype = names::prototype(operation);
    if let Some(subject) = names::subject(prototype, argument_at(context, prototype.argument)) {
        count(&subject, operation, Outcome::requested(0), 0);
    }
}

/// Declares both programs for a function.
macro_rules! programs {
    ($($function:literal, $kprobe:ident, $fentry:ident: |$context:ident| $body:expr;)+) => {
        $(
            #[kprobe(function = $function)]
            fn $kprobe($context: ProbeContext) -> u32 {
                $body;
                0
            }

            #[fentry(function = $function)]
            fn $fentry($context: FEntryContext) -> i32 {
                $body;
                0
            }
        )+
    };
}

programs! {
    "vfs_read", kprobe__vfs_read, fentry__vfs_read:
        |context| count_file(&context, Operation::Read, context.argument(2));
    "vfs_write", kprobe__vfs_write, fentry__vfs_write:
        |context| count_file(&context, Operation::Write, context.argument(2));
    "vfs_readv", kprobe__vfs_readv, fentry__vfs_readv:
        |context| count_file(&context, Operation::Readv, requested(context.argument(1), context.argument(2)));
    "vfs_writev", kprobe__vfs_writev, fentry__vfs_writev:
        |context| count_file(&context, Operation::Writev, requested(context.argument(1), context.argument(2)));
    "sys_fsync", kprobe__sys_fsync, fentry__sys_fsync: |context| count_fsync(&context);
    "sys_fdatasync", kprobe__sys_fdatasync, fentry__sys_fdatasync: |context| count_fsync(&context);
    "do_dentry_open", kprobe__do_dentry_open, fentry__do_dentry_open: |context| count_open(&context);
    "mnt_want_write", kprobe__mnt_want_write, fentry__mnt_want_write: |context| names::wants(context.argument(0));
    "vfs_create", kprobe__vfs_create, fentry__vfs_create: |context| count_name(&context, Operation::Create);
    "vfs_mkdir", kprobe__vfs_mkdir, fentry__vfs_mkdir: |context| count_name(&context, Operation::Mkdir);
    "vfs_unlink", kprobe__vfs_unlink, fentry__vfs_unlink: |context| count_name(&context, Operation::Unlink);
    "vfs_rmdir", kprobe__vfs_rmdir, fentry__vfs_rmdir: |context| count_name(&context, Operation::Rmdir);
    "vfs_rename", kprobe__vfs_rename, fentry__vfs_rename: |context| count_name(&context, Operation::Rename);
}

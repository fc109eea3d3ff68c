// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! System calls by number. The programs use the raw tracepoints `sys_enter` and `sys_exit`, which
//! every call passes, or the tracepoints of single calls, to each of which the loader attaches the
//! two programs. Both variants count what was returned.
//!
//! If tasks can be preempted inside the kernel, there are six copies of these programs.
//! `raw-tracepoint.bpf.c` and `tracepoint.bpf.c` of the C programs explain why.

#![expect(non_snake_case, reason = "two underscores separate the parts of a program's name")]

use aya_ebpf::{
    macros::{raw_tracepoint, tracepoint},
    programs::{RawTracePointContext, TracePointContext},
};
use bpfassay_tracer_common::Operation;

use super::{
    arch::{is_compat, number},
    count::By,
    descriptor::{begins, ends},
    files::is_regular,
    kernel::{Address, offset, read},
};

/// `AT_REMOVEDIR` (include/uapi/linux/fcntl.h).
pub(super) const REMOVE_DIRECTORY: u64 = 0x200;

/// Returns whether `number` is one of `numbers`, by a chain of comparisons.
#[inline(always)]
fn is_one<const N: usize>(number: i64, numbers: [i64; N]) -> bool {
    let mut found = false;
    let mut index = 0;
    while index < N {
        found |= number == numbers[index];
        index += 1;
    }
    found
}

/// Handles the entry of a system call. Arguments are only read if they matter.
#[inline(always)]
fn syscall_begins(by: By, number: i64, argument: impl Fn(usize) -> u64) {
    let (operation, by_descriptor) = if is_one(number, number::READ) {
        (Operation::Read, true)
    } else if is_one(number, number::WRITE) {
        (Operation::Write, true)
    } else if is_one(number, number::READV) {
        (Operation::Readv, true)
    } else if is_one(number, number::WRITEV) {
        (Operation::Writev, true)
    } else if is_one(number, number::FSYNC) {
        (Operation::Fsync, true)
    } else if is_one(number, number::OPEN) {
        (Operation::Open, false)
    } else if is_one(number, number::MKDIR) {
        (Operation::Mkdir, false)
    } else if is_one(number, number::UNLINK) {
        (Operation::Unlink, false)
    } else if is_one(number, number::RMDIR) {
        (Operation::Rmdir, false)
    } else if is_one(number, number::RENAME) {
        (Operation::Rename, false)
    } else if number == number::UNLINKAT {
        (if argument(2) & REMOVE_DIRECTORY != 0 { Operation::Rmdir } else { Operation::Unlink }, false)
    } else if is_one(number, number::MKNOD) && is_regular(argument(1))
        || number == number::MKNODAT && is_regular(argument(2))
    {
        (Operation::Create, false)
    } else {
        return;
    };
    begins(by, operation, if by_descriptor { Some(argument(0)) } else { None });
}

/// Declares both programs of a copy.
macro_rules! raw_tracepoints {
    ($($copy:literal: $enter:ident, $exit:ident;)+) => {
        $(
            #[raw_tracepoint(tracepoint = "sys_enter")]
            fn $enter(context: RawTracePointContext) -> i32 {
                if is_compat() {
                    return 0;
                }
                let registers: Address = context.arg(0);
                syscall_begins(By::copy($copy), context.arg(1), |index| match index {
                    0 => read(registers, offset!(syscall_argument_0)),
                    1 => read(registers, offset!(syscall_argument_1)),
                    _ => read(registers, offset!(syscall_argument_2)),
                });
                0
            }

            #[raw_tracepoint(tracepoint = "sys_exit")]
            fn $exit(context: RawTracePointContext) -> i32 {
                ends(By::copy($copy), context.arg(1));
                0
            }
        )+
    };
}

raw_tracepoints! {
    0: raw_tracepoint__sys_enter, raw_tracepoint__sys_exit;
    1: raw_tracepoint__sys_enter__2, raw_tracepoint__sys_exit__2;
    2: raw_tracepoint__sys_enter__3, raw_tracepoint__sys_exit__3;
    3: raw_tracepoint__sys_enter__4, raw_tracepoint__sys_exit__4;
    4: raw_tracepoint__sys_enter__5, raw_tracepoint__sys_exit__5;
    5: raw_tracepoint__sys_enter__6, raw_tracepoint__sys_exit__6;
}

/// Declares both programs of a copy.
macro_rules! tracepoints {
    ($($copy:literal: $enter:ident, $exit:ident;)+) => {
        $(
            #[tracepoint]
            fn $enter(context: TracePointContext) -> u32 {
                // SAFETY: the helper checks the address.
                unsafe {
                    let Ok(number) = context.read_at(offset!(enter_number)) else { return 0 };
                    let argument = |index| context.read_at(offset!(enter_arguments) + 8 * index).unwrap_or(0);
                    syscall_begins(By::copy($copy), number, argument);
                }
                0
            }

            #[tracepoint]
            fn $exit(context: TracePointContext) -> u32 {
                // SAFETY: the helper checks the address.
                if let Ok(result) = unsafe { context.read_at(offset!(exit_result)) } {
                    ends(By::copy($copy), result);
                }
                0
            }
        )+
    };
}

tracepoints! {
    0: tracepoint__enter, tracepoint__exit;
    1: tracepoint__enter__2, tracepoint__exit__2;
    2: tracepoint__enter__3, tracepoint__exit__3;
    3: tracepoint__enter__4, tracepoint__exit__4;
    4: tracepoint__enter__5, tracepoint__exit__5;
    5: tracepoint__enter__6, tracepoint__exit__6;
}

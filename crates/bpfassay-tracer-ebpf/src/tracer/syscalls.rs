//! System calls by their number, through the raw tracepoints `sys_enter` and `sys_exit`, which every call passes, or
//! through the tracepoints of single calls, to each of which the loader attaches the two programs. Both count what was
//! returned.
//!
//! Where tasks are preempted inside the kernel there are six copies of these programs: `raw-tracepoint.bpf.c` and
//! `tracepoint.bpf.c` on the C side have the reason.

#![expect(non_snake_case, reason = "two underscores separate the parts of a program's name")]

use aya_ebpf::{
    helpers::generated::bpf_get_current_task,
    macros::{raw_tracepoint, tracepoint},
    programs::{RawTracePointContext, TracePointContext},
};
use bpfassay_tracer_common::Operation;

use super::{
    count::By,
    descriptor::{begins, ends},
    files::is_regular,
    kernel::{Address, offset, read},
};

/// arch/x86/entry/syscalls/syscall_64.tbl.
#[cfg(bpf_target_arch = "x86_64")]
mod number {
    pub(super) const READ: [i64; 2] = [0, 17];
    pub(super) const WRITE: [i64; 2] = [1, 18];
    pub(super) const READV: [i64; 3] = [19, 295, 327];
    pub(super) const WRITEV: [i64; 3] = [20, 296, 328];
    pub(super) const FSYNC: [i64; 2] = [74, 75];
    /// `open`, `creat`, `openat`, `openat2`.
    pub(super) const OPEN: [i64; 4] = [2, 85, 257, 437];
    pub(super) const MKDIR: [i64; 2] = [83, 258];
    pub(super) const UNLINK: [i64; 1] = [87];
    pub(super) const UNLINKAT: i64 = 263;
    pub(super) const RMDIR: [i64; 1] = [84];
    pub(super) const RENAME: [i64; 3] = [82, 264, 316];
    pub(super) const MKNOD: [i64; 1] = [133];
    pub(super) const MKNODAT: i64 = 259;
}

/// include/uapi/asm-generic/unistd.h.
#[cfg(not(bpf_target_arch = "x86_64"))]
mod number {
    pub(super) const READ: [i64; 2] = [63, 67];
    pub(super) const WRITE: [i64; 2] = [64, 68];
    pub(super) const READV: [i64; 3] = [65, 69, 286];
    pub(super) const WRITEV: [i64; 3] = [66, 70, 287];
    pub(super) const FSYNC: [i64; 2] = [82, 83];
    /// `openat`, `openat2`.
    pub(super) const OPEN: [i64; 2] = [56, 437];
    pub(super) const MKDIR: [i64; 1] = [34];
    pub(super) const UNLINK: [i64; 0] = [];
    pub(super) const UNLINKAT: i64 = 35;
    pub(super) const RMDIR: [i64; 0] = [];
    pub(super) const RENAME: [i64; 2] = [38, 276];
    pub(super) const MKNOD: [i64; 0] = [];
    pub(super) const MKNODAT: i64 = 33;
}

/// `AT_REMOVEDIR` (include/uapi/linux/fcntl.h).
pub(super) const REMOVE_DIRECTORY: u64 = 0x200;

/// Whether `number` is one of `numbers`; a chain of comparisons.
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

/// At the entry of a system call; the arguments are only asked for where they matter.
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

/// Whether the calling task is in a call for 32 bits, which has other numbers.
#[inline(always)]
fn is_compat() -> bool {
    // SAFETY: takes no arguments.
    let task: Address = unsafe { bpf_get_current_task() };
    // `TS_COMPAT` (arch/x86/include/asm/thread_info.h).
    #[cfg(bpf_target_arch = "x86_64")]
    return read::<u32>(task, offset!(thread_status)) & 0x2 != 0;
    // `TIF_32BIT` (arch/arm64/include/asm/thread_info.h).
    #[cfg(bpf_target_arch = "aarch64")]
    return read::<u64>(task, offset!(thread_status)) >> 22 & 1 != 0;
    // Debian's riscv64 has no programs for 32 bits.
    #[cfg(bpf_target_arch = "riscv64")]
    {
        let _ = task;
        false
    }
}

/// Both programs of a copy.
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

/// Both programs of a copy.
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

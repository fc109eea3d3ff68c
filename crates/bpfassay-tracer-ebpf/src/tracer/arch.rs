// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Differences between architectures: the stack pointer's name, numbers of system calls, 32-bit
//! tasks. No item has a default.

#[cfg(any(bpf_target_arch = "x86_64", bpf_target_arch = "aarch64"))]
use aya_ebpf::helpers::generated::bpf_get_current_task;
use aya_ebpf::programs::ProbeContext;

#[cfg(any(bpf_target_arch = "x86_64", bpf_target_arch = "aarch64"))]
use super::kernel::{Address, offset, read};

/// Returns the stack pointer. aya-ebpf declares the context as the registers in the layout for user
/// space.
#[inline(always)]
pub(super) fn stack_pointer(context: &ProbeContext) -> u64 {
    // SAFETY: the verifier checks the access to the context.
    unsafe {
        #[cfg(bpf_target_arch = "x86_64")]
        return (*context.regs).rsp;
        #[cfg(any(bpf_target_arch = "aarch64", bpf_target_arch = "riscv64"))]
        return (*context.regs).sp;
    }
}

/// arch/x86/entry/syscalls/syscall_64.tbl.
#[cfg(bpf_target_arch = "x86_64")]
pub(super) mod number {
    pub(in super::super) const READ: [i64; 2] = [0, 17];
    pub(in super::super) const WRITE: [i64; 2] = [1, 18];
    pub(in super::super) const READV: [i64; 3] = [19, 295, 327];
    pub(in super::super) const WRITEV: [i64; 3] = [20, 296, 328];
    pub(in super::super) const FSYNC: [i64; 2] = [74, 75];
    /// `open`, `creat`, `openat`, `openat2`.
    pub(in super::super) const OPEN: [i64; 4] = [2, 85, 257, 437];
    pub(in super::super) const MKDIR: [i64; 2] = [83, 258];
    pub(in super::super) const UNLINK: [i64; 1] = [87];
    pub(in super::super) const UNLINKAT: i64 = 263;
    pub(in super::super) const RMDIR: [i64; 1] = [84];
    pub(in super::super) const RENAME: [i64; 3] = [82, 264, 316];
    pub(in super::super) const MKNOD: [i64; 1] = [133];
    pub(in super::super) const MKNODAT: i64 = 259;
}

/// include/uapi/asm-generic/unistd.h.
#[cfg(any(bpf_target_arch = "aarch64", bpf_target_arch = "riscv64"))]
pub(super) mod number {
    pub(in super::super) const READ: [i64; 2] = [63, 67];
    pub(in super::super) const WRITE: [i64; 2] = [64, 68];
    pub(in super::super) const READV: [i64; 3] = [65, 69, 286];
    pub(in super::super) const WRITEV: [i64; 3] = [66, 70, 287];
    pub(in super::super) const FSYNC: [i64; 2] = [82, 83];
    /// `openat`, `openat2`.
    pub(in super::super) const OPEN: [i64; 2] = [56, 437];
    pub(in super::super) const MKDIR: [i64; 1] = [34];
    pub(in super::super) const UNLINK: [i64; 0] = [];
    pub(in super::super) const UNLINKAT: i64 = 35;
    pub(in super::super) const RMDIR: [i64; 0] = [];
    pub(in super::super) const RENAME: [i64; 2] = [38, 276];
    pub(in super::super) const MKNOD: [i64; 0] = [];
    pub(in super::super) const MKNODAT: i64 = 33;
}

/// Returns whether the calling task is in a 32-bit call, which has a different number.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub(super) fn is_compat() -> bool {
    // `TS_COMPAT` (arch/x86/include/asm/thread_info.h).
    read::<u32>(current_task(), offset!(thread_status)) & 0x2 != 0
}

/// Returns whether the calling task is in a 32-bit call, which has a different number.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub(super) fn is_compat() -> bool {
    // `TIF_32BIT` (arch/arm64/include/asm/thread_info.h).
    read::<u64>(current_task(), offset!(thread_status)) >> 22 & 1 != 0
}

/// Returns false: Debian's riscv64 has no 32-bit programs.
#[cfg(bpf_target_arch = "riscv64")]
#[inline(always)]
pub(super) fn is_compat() -> bool {
    false
}

#[cfg(any(bpf_target_arch = "x86_64", bpf_target_arch = "aarch64"))]
#[inline(always)]
fn current_task() -> Address {
    // SAFETY: takes no arguments.
    unsafe { bpf_get_current_task() }
}

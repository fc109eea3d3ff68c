// SPDX-License-Identifier: MIT OR Apache-2.0
//! Markers in the stream of executed instructions: where a window begins and ends in which QEMU's plugin counts (`bpfassay-plugin`).
//!
//! A marker is an instruction that every processor of its architecture executes without any effect: a `nop` with an operand on x86_64, a
//! move to the zero register on aarch64, a comparison into the zero register on riscv64. It is executed twice per phase, by the agent
//! only, and does the same with and without the plugin, which is invisible to the guest.

use std::{
    arch::asm,
    sync::atomic::{AtomicU64, Ordering},
};

/// Windows that have begun.
static WINDOWS: AtomicU64 = AtomicU64::new(0);

/// Begins a window. Returns its number, from 1: the plugin numbers them alike.
#[inline(never)]
pub(crate) fn begin() -> u64 {
    let number = WINDOWS.fetch_add(1, Ordering::Relaxed) + 1;
    // SAFETY: the instruction reads and writes neither registers nor memory.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("nop dword ptr [rax + rax + 0x42504601]", options(nomem, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        asm!("movz xzr, #0x4201", options(nomem, nostack, preserves_flags));
        #[cfg(target_arch = "riscv64")]
        asm!("slti x0, x0, 0x421", options(nomem, nostack, preserves_flags));
    }
    number
}

/// Ends the window that has begun. Without one it does nothing.
#[inline(never)]
pub(crate) fn end() {
    // SAFETY: the instruction reads and writes neither registers nor memory.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("nop dword ptr [rax + rax + 0x42504602]", options(nomem, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        asm!("movz xzr, #0x4202", options(nomem, nostack, preserves_flags));
        #[cfg(target_arch = "riscv64")]
        asm!("slti x0, x0, 0x422", options(nomem, nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_harmless_and_windows_are_numbered() {
        let first = begin();
        end();
        assert_eq!(begin(), first + 1);
        end();
        end();
    }
}

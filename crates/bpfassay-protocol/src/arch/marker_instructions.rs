// SPDX-License-Identifier: MIT OR Apache-2.0
//! Markers: one instruction begins a window, another one ends it. QEMU's plugin counts what is
//! executed in between.
//!
//! A marker has no effect on any CPU of the architecture. The agent executes markers
//! (`bpfassay-guest`). The plugin finds them in the guest's code; it is compiled separately and has
//! this file as a symbolic link (`bpfassay-plugin`).

/// `nop dword ptr [rax + rax + 0x425046NN]`.
pub(crate) const X86_64: [&[u8]; 2] =
    [&[0x0f, 0x1f, 0x84, 0x00, 0x01, 0x46, 0x50, 0x42], &[0x0f, 0x1f, 0x84, 0x00, 0x02, 0x46, 0x50, 0x42]];

/// `movz xzr, #0x42NN`.
pub(crate) const AARCH64: [&[u8]; 2] = [&[0x3f, 0x40, 0x88, 0xd2], &[0x5f, 0x40, 0x88, 0xd2]];

/// `slti x0, x0, 0x42N`.
pub(crate) const RISCV64: [&[u8]; 2] = [&[0x13, 0x20, 0x10, 0x42], &[0x13, 0x20, 0x20, 0x42]];

/// The markers of each architecture, by its name in `uname -m` and in QEMU.
#[allow(dead_code, reason = "the plugin's")]
pub(crate) const ALL: [(&str, [&[u8]; 2]); 3] = [("x86_64", X86_64), ("aarch64", AARCH64), ("riscv64", RISCV64)];

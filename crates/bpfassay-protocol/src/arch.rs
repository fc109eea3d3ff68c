// SPDX-License-Identifier: MIT OR Apache-2.0
//! Architectures of guests.

use crate::names;

names! {
    /// The architecture of a guest, by the name that `uname -m` prints there.
    pub enum Arch: "architecture" {
        /// 64-bit x86.
        X86_64 = "x86_64",
        /// 64-bit Arm.
        Aarch64 = "aarch64",
        /// 64-bit RISC-V.
        Riscv64 = "riscv64",
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! 64-bit Arm.

use super::{ArchFacts, ImageFormat};

#[cfg(target_arch = "aarch64")]
impl super::Arch {
    /// The architecture that this program was built for.
    pub const BUILT_FOR: Self = Self::Aarch64;
}

pub(super) const FACTS: ArchFacts = ArchFacts {
    debian_name: "arm64",
    rust_target: "aarch64-unknown-linux-gnu",
    gcc_package: "gcc-aarch64-linux-gnu",
    elf_machine: 183,
    // Documentation/arch/arm64/booting.rst.
    image: ImageFormat::Image { magic: *b"ARM\x64" },
    qemu_packages: "qemu-system-arm",
    machine_type: "virt-7.2,gic-version=3",
    // The host's interrupt controller: its CPU cannot virtualise another one.
    kvm_machine_type: "virt-7.2,gic-version=host",
    // A server processor with LSE atomics and without pointer authentication, which is expensive
    // under TCG (`max` boots 0.2 s slower even with `pauth-impdef=on`).
    cpu_model: "neoverse-n1",
    console: "ttyAMA0",
    kernel_parameters: &[],
    single_tcg_cpu_parameters: &[],
    // The architected timer reports its frequency.
    emulated_wall_clock_parameters: &[],
    refused_memory_mib: None,
    bpf_target: "arm64",
    syscall_prefix: "__arm64_",
    // arch/arm64/include/asm/ptrace.h (6.12): `regs[0]` to `regs[7]`.
    argument_offsets: &[0, 8, 16, 24, 32, 40, 48, 56],
    syscall_arguments: ["pt_regs.orig_x0", "pt_regs.regs+8", "pt_regs.regs+16"],
    markers: super::marker_instructions::AARCH64,
    behind_ftrace_site: None,
    static_programs_move: false,
    current_task_needs_jit: false,
};

// COMMAND_LINE_SIZE in arch/arm64/include/uapi/asm/setup.h.
pub(super) const LONGEST_COMMAND_LINE: usize = 2047;

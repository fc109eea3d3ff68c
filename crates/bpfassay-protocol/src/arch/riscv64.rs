// SPDX-License-Identifier: MIT OR Apache-2.0
//! 64-bit RISC-V.

use super::{ArchFacts, ImageFormat};

#[cfg(target_arch = "riscv64")]
impl super::Arch {
    /// The architecture that this program was built for.
    pub const BUILT_FOR: Self = Self::Riscv64;
}

pub(super) const FACTS: ArchFacts = ArchFacts {
    debian_name: "riscv64",
    rust_target: "riscv64gc-unknown-linux-gnu",
    gcc_package: "gcc-riscv64-linux-gnu",
    elf_machine: 243,
    // Documentation/arch/riscv/boot-image-header.rst.
    image: ImageFormat::Image { magic: *b"RSC\x05" },
    // Debian 12; later releases keep the name as a package that depends on the right one.
    qemu_packages: "qemu-system-misc opensbi",
    // This board has no versions. QEMU includes OpenSBI as its default firmware.
    machine_type: "virt",
    kvm_machine_type: "virt",
    // The generic RV64GC, the only model that QEMU 7.2 offers besides boards' own.
    cpu_model: "rv64",
    console: "ttyS0",
    // Addresses of 39 bits, as most processors have them (Documentation/admin-guide/kernel-parameters.txt; since 6.4). With QEMU's 57 bits, compiled
    // trampolines load the address of a structure with 2 to 8 instructions more or fewer by where it is: `emit_imm` in
    // arch/riscv/net/bpf_jit_comp64.c leaves out zeros, and with 39 bits few numbers have any to leave out.
    kernel_parameters: &["no4lvl"],
    single_tcg_cpu_parameters: &[],
    // The architecture's timer reports its frequency.
    emulated_wall_clock_parameters: &[],
    // QEMU compares the size of the initramfs with the memory's size less the address where it is to be loaded, though memory begins at 2 GiB
    // here (`riscv_load_initrd` in hw/riscv/boot.c: 128 MiB, in later versions 512 MiB, after the kernel's address). Below that address
    // the difference wraps around, and nothing is refused; a little above, everything is. The kernel is loaded after the firmware: 2 MiB in
    // QEMU 7.2 and 10.0.
    refused_memory_mib: Some((2048 + 128, 2048 + 512 + 16)),
    bpf_target: "riscv",
    syscall_prefix: "__riscv_",
    // arch/riscv/include/asm/ptrace.h (6.12): `a0`, the eleventh register, to `a7`.
    argument_offsets: &[80, 88, 96, 104, 112, 120, 128, 136],
    syscall_arguments: ["pt_regs.orig_a0", "pt_regs.a1", "pt_regs.a2"],
    markers: super::markers::RISCV64,
    // The first eight bytes of a function are its ftrace site (`auipc` and `jalr`, or no-ops). Linux 6.12 refuses kprobes there with
    // EINVAL and does not hook them through ftrace either; 7.2 accepts them. The instruction after the site is the first of the function
    // proper: arguments are still in their registers there, and each call executes it exactly once.
    behind_ftrace_site: Some(8),
    static_programs_move: false,
    // The JIT compiler inlines the helper, and 7.2 refuses it to programs that are not compiled ("program requires BPF JIT compiler").
    current_task_needs_jit: true,
};

// COMMAND_LINE_SIZE in arch/riscv/include/uapi/asm/setup.h; half of it before Linux 5.13.
pub(super) const LONGEST_COMMAND_LINE: usize = 1023;

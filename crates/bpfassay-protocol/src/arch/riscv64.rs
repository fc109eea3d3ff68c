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
    // The name in Debian 12. Later releases keep it as a package that depends on the right one.
    qemu_packages: "qemu-system-misc opensbi",
    // This board has no versions. QEMU includes OpenSBI as its default firmware.
    machine_type: "virt",
    kvm_machine_type: "virt",
    // The generic RV64GC, the only CPU model of QEMU 7.2 that is not of a board.
    cpu_model: "rv64",
    console: "ttyS0",
    // Use 39-bit addresses, like most CPUs (Documentation/admin-guide/kernel-parameters.txt; since
    // 6.4). With QEMU's 57 bits, JIT-compiled trampolines need 2 to 8 instructions more or fewer to
    // load an address, depending on its value: `emit_imm` in arch/riscv/net/bpf_jit_comp64.c omits
    // zeros. 39-bit numbers have few zeros to omit.
    kernel_parameters: &["no4lvl"],
    single_tcg_cpu_parameters: &[],
    // The architected timer reports its frequency.
    emulated_wall_clock_parameters: &[],
    // QEMU compares the size of the initramfs with the memory's size minus its load address,
    // although memory begins at 2 GiB. The load address is 128 MiB after the kernel's (512 MiB in
    // later versions; `riscv_load_initrd` in hw/riscv/boot.c). Below that address the difference
    // wraps around, and QEMU refuses nothing. A little above, it refuses everything. The kernel is
    // loaded after the firmware: 2 MiB in QEMU 7.2 and 10.0.
    refused_memory_mib: Some((2048 + 128, 2048 + 512 + 16)),
    bpf_target: "riscv",
    syscall_prefix: "__riscv_",
    // arch/riscv/include/asm/ptrace.h (6.12): `a0`, the eleventh register, to `a7`.
    argument_offsets: &[80, 88, 96, 104, 112, 120, 128, 136],
    syscall_arguments: ["pt_regs.orig_a0", "pt_regs.a1", "pt_regs.a2"],
    markers: super::marker_instructions::RISCV64,
    // The first eight bytes of a function are its ftrace site (`auipc` and `jalr`, or no-ops).
    // Linux 6.12 refuses kprobes on the site with EINVAL and does not use ftrace for them; 7.2
    // accepts them. The next instruction is the first of the function proper: arguments are still
    // in registers, and each call executes it exactly once.
    behind_ftrace_site: Some(8),
    static_programs_move: false,
    // The JIT compiler inlines the helper. Linux 7.2 refuses it to programs that are not compiled
    // ("program requires BPF JIT compiler").
    current_task_needs_jit: true,
};

// COMMAND_LINE_SIZE in arch/riscv/include/uapi/asm/setup.h; half of it before Linux 5.13.
pub(super) const LONGEST_COMMAND_LINE: usize = 1023;

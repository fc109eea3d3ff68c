// SPDX-License-Identifier: MIT OR Apache-2.0
//! 64-bit x86.

use super::{ArchFacts, ImageFormat};

#[cfg(target_arch = "x86_64")]
impl super::Arch {
    /// The architecture that this program was built for.
    pub const BUILT_FOR: Self = Self::X86_64;
}

pub(super) const FACTS: ArchFacts = ArchFacts {
    debian_name: "amd64",
    rust_target: "x86_64-unknown-linux-gnu",
    gcc_package: "gcc-x86-64-linux-gnu",
    elf_machine: 62,
    image: ImageFormat::BzImage,
    qemu_packages: "qemu-system-x86",
    // Without devices that no guest here uses and on which firmware or kernel would spend time.
    machine_type: "pc-q35-7.2,i8042=off,sata=off,smbus=off,usb=off",
    kvm_machine_type: "pc-q35-7.2,i8042=off,sata=off,smbus=off,usb=off",
    // Everything that TCG can do, but no fast string operations: kernels that find ERMS or FSRM copy with `rep movsb`, where one
    // instruction moves any number of bytes and ends TCG's translation block.
    cpu_model: "max,-erms,-fsrm",
    console: "ttyS0",
    // The clock of a virtual machine needs no watchdog clock, whose delays under load would mark it unstable.
    kernel_parameters: &["tsc=reliable", "no_timer_check"],
    // The local timer's calibration waits for 0.1 s, and the HPET is enough for one emulated processor. With more than one, they
    // would have to wake each other for every tick.
    single_tcg_cpu_parameters: &["nolapic_timer"],
    // The kernel calibrates the TSC against other timers while it boots. On a busy host it was wrong by a factor of 4.6, and with it all times of that boot. The
    // other clocks of the board have frequencies that QEMU defines.
    emulated_wall_clock_parameters: &["tsc=unstable"],
    refused_memory_mib: None,
    bpf_target: "x86",
    syscall_prefix: "__x64_",
    // arch/x86/include/asm/ptrace.h (6.12) and the System V ABI: di, si, dx, cx, r8, r9.
    argument_offsets: &[112, 104, 96, 88, 72, 64],
    syscall_arguments: ["pt_regs.di", "pt_regs.si", "pt_regs.dx"],
    markers: super::markers::X86_64,
    behind_ftrace_site: None,
    static_programs_move: true,
    current_task_needs_jit: false,
};

// COMMAND_LINE_SIZE in arch/x86/include/asm/setup.h.
pub(super) const LONGEST_COMMAND_LINE: usize = 2047;

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
    // Devices that no guest uses are off: firmware and kernel would spend time on them.
    machine_type: "pc-q35-7.2,i8042=off,sata=off,smbus=off,usb=off",
    kvm_machine_type: "pc-q35-7.2,i8042=off,sata=off,smbus=off,usb=off",
    // All features of TCG, but no fast string operations. Kernels that find ERMS or FSRM copy with
    // `rep movsb`: one instruction then moves any number of bytes and ends TCG's translation block.
    cpu_model: "max,-erms,-fsrm",
    console: "ttyS0",
    // A virtual machine's clock needs no clocksource watchdog. Delays under load would make the
    // watchdog mark the clock unstable.
    kernel_parameters: &["tsc=reliable", "no_timer_check"],
    // The local timer's calibration takes 0.1 s, and the HPET is enough for one emulated CPU.
    // Several CPUs would have to wake each other for every tick.
    single_tcg_cpu_parameters: &["nolapic_timer"],
    // The kernel calibrates the TSC against other timers at boot. On a busy host the result was
    // wrong by a factor of 4.6, and so were all times of that boot. QEMU defines the frequencies of
    // the board's other clocks.
    emulated_wall_clock_parameters: &["tsc=unstable"],
    refused_memory_mib: None,
    bpf_target: "x86",
    syscall_prefix: "__x64_",
    // arch/x86/include/asm/ptrace.h (6.12) and the System V ABI: di, si, dx, cx, r8, r9.
    argument_offsets: &[112, 104, 96, 88, 72, 64],
    syscall_arguments: ["pt_regs.di", "pt_regs.si", "pt_regs.dx"],
    markers: super::marker_instructions::X86_64,
    behind_ftrace_site: None,
    static_programs_move: true,
    current_task_needs_jit: false,
};

// COMMAND_LINE_SIZE in arch/x86/include/asm/setup.h.
pub(super) const LONGEST_COMMAND_LINE: usize = 2047;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Architectures of guests. Everything that differs between them is data: one file for each in
//! `arch/`.
//!
//! A new architecture needs a file in `arch/`, and in this file a `mod`, a name and a line in
//! [`Arch::facts`]. A missing fact is a compile error, because [`ArchFacts`] has no defaults.

mod aarch64;
mod marker_instructions;
mod riscv64;
mod x86_64;

use crate::names;

names! {
    /// The architecture of a guest, named as by `uname -m`.
    pub enum Arch: "architecture" {
        /// 64-bit x86.
        X86_64 = "x86_64",
        /// 64-bit Arm.
        Aarch64 = "aarch64",
        /// 64-bit RISC-V.
        Riscv64 = "riscv64",
    }
}

impl Arch {
    /// Returns the facts of this architecture.
    #[must_use]
    pub const fn facts(self) -> &'static ArchFacts {
        match self {
            Self::X86_64 => &x86_64::FACTS,
            Self::Aarch64 => &aarch64::FACTS,
            Self::Riscv64 => &riscv64::FACTS,
        }
    }

    /// Returns the architecture of a 64-bit little-endian ELF file, from the header's `e_machine`.
    #[must_use]
    pub fn of_elf_machine(machine: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|arch| arch.facts().elf_machine == machine)
    }

    /// Returns the triplet of GNU tools and Debian's library directories, such as
    /// `aarch64-linux-gnu`.
    #[must_use]
    pub fn gnu_triplet(self) -> String {
        format!("{self}-linux-gnu")
    }
}

/// The facts of one architecture.
#[derive(Debug)]
pub struct ArchFacts {
    /// Debian's name of the architecture.
    pub debian_name: &'static str,
    /// Rust's target for the guest's programs.
    pub rust_target: &'static str,
    /// Debian's package with the C compiler for the architecture.
    pub gcc_package: &'static str,
    /// `e_machine` of ELF files (include/uapi/linux/elf-em.h).
    pub elf_machine: u16,
    /// The format of the kernel images that QEMU boots.
    pub image: ImageFormat,
    /// Debian packages with QEMU's program and its firmware, separated by spaces.
    pub qemu_packages: &'static str,
    /// QEMU's machine type under TCG. If QEMU has versions of it, this is the version of the oldest
    /// supported QEMU: the guest sees the same hardware under every newer QEMU.
    pub machine_type: &'static str,
    /// QEMU's machine type under KVM.
    pub kvm_machine_type: &'static str,
    /// QEMU's CPU model under TCG. It is set explicitly because it decides what an instruction
    /// does. Under KVM it is `host`.
    pub cpu_model: &'static str,
    /// The kernel's name of the first serial port.
    pub console: &'static str,
    /// Kernel parameters of every guest.
    pub kernel_parameters: &'static [&'static str],
    /// Further kernel parameters of a guest with one emulated CPU.
    pub single_tcg_cpu_parameters: &'static [&'static str],
    /// Further kernel parameters of an emulated guest under the wall clock.
    pub emulated_wall_clock_parameters: &'static [&'static str],
    /// Memory sizes in MiB at which QEMU refuses an initramfs: from the first number up to the
    /// second number plus the initramfs.
    pub refused_memory_mib: Option<(u32, u32)>,
    /// The architecture's name in libbpf's headers: the suffix of `__TARGET_ARCH_x86`.
    pub bpf_target: &'static str,
    /// The prefix of `sys_NAME` in function names of system calls
    /// (arch/*/include/asm/syscall_wrapper.h).
    pub syscall_prefix: &'static str,
    /// Byte offsets in `struct pt_regs` of the argument registers, the first argument first.
    pub argument_offsets: &'static [usize],
    /// Members of `struct pt_regs` with the first three arguments at the entry of a system call.
    pub syscall_arguments: [&'static str; 3],
    /// No-op instructions of four or eight bytes that delimit a counting window of QEMU's plugin.
    pub markers: [&'static [u8]; 2],
    /// Offset in bytes from a function's entry for a kprobe if the kernel refuses the entry itself.
    pub behind_ftrace_site: Option<usize>,
    /// Whether rustc builds static programs that the kernel can load at any address
    /// (`static_position_independent_executables` of the target).
    pub static_programs_move: bool,
    /// Whether the kernel can refuse `bpf_get_current_task` to programs that were not JIT-compiled.
    pub current_task_needs_jit: bool,
}

/// The format of a kernel image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// `bzImage`: `HdrS` at 0x202, and the release at an offset in the header
    /// (Documentation/arch/x86/boot.rst).
    BzImage,
    /// `Image`: these four bytes at 0x38.
    Image {
        /// The magic number.
        magic: [u8; 4],
    },
}

impl Arch {
    /// Length of the longest kernel command line in bytes: `COMMAND_LINE_SIZE` without the NUL.
    #[inline]
    #[must_use]
    pub const fn longest_command_line(self) -> usize {
        match self {
            Self::X86_64 => x86_64::LONGEST_COMMAND_LINE,
            Self::Aarch64 => aarch64::LONGEST_COMMAND_LINE,
            Self::Riscv64 => riscv64::LONGEST_COMMAND_LINE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_do_not_share_what_must_distinguish_them() {
        for (at, arch) in Arch::ALL.iter().enumerate() {
            let one = arch.facts();
            assert_eq!(Arch::of_elf_machine(one.elf_machine), Some(*arch));
            for other in Arch::ALL[at + 1..].iter().map(|other| other.facts()) {
                assert_ne!(one.debian_name, other.debian_name);
                assert_ne!(one.rust_target, other.rust_target);
                assert_ne!(one.image, other.image);
                assert_ne!(one.bpf_target, other.bpf_target);
                assert_ne!(one.syscall_prefix, other.syscall_prefix);
            }
        }
        assert_eq!(Arch::BUILT_FOR.name(), std::env::consts::ARCH);
        // The plugin finds the markers by these names.
        let all: Vec<_> = Arch::ALL.iter().map(|arch| (arch.name(), arch.facts().markers)).collect();
        assert_eq!(marker_instructions::ALL, all.as_slice());
    }
}

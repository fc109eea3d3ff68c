// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the guest.

use std::ffi::OsString;

use bpfassay_protocol::Arch;

use crate::device::MachineDevice;

/// Memory in MiB.
#[derive(Debug, Clone, Copy)]
pub struct MachineMemory {
    /// Size in MiB.
    pub mib: u32,
}

impl MachineMemory {
    /// Returns `mib`, or the next larger size at which QEMU for `arch` accepts an initramfs of
    /// `initramfs` bytes.
    #[must_use]
    pub fn for_initramfs(arch: Arch, mib: u32, initramfs: u64) -> Self {
        let Some((first, last)) = arch.facts().refused_memory_mib else { return Self { mib } };
        let takes = last.saturating_add(u32::try_from(initramfs.div_ceil(1 << 20)).unwrap_or(u32::MAX));
        Self { mib: if (first..takes).contains(&mib) { takes } else { mib } }
    }
}

impl MachineDevice for MachineMemory {
    fn arguments(&self) -> Vec<OsString> {
        vec!["-m".into(), format!("{}M", self.mib).into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_at_which_qemu_refuses_an_initramfs_are_avoided() {
        let of = |arch, mib| MachineMemory::for_initramfs(arch, mib, 900 << 20).mib;
        assert_eq!(of(Arch::Riscv64, 1024), 1024);
        assert_eq!(of(Arch::Riscv64, 2175), 2175);
        assert_eq!(of(Arch::Riscv64, 2176), 3476);
        assert_eq!(of(Arch::Riscv64, 3475), 3476);
        assert_eq!(of(Arch::Riscv64, 3477), 3477);
        assert_eq!(of(Arch::X86_64, 2176), 2176);
        assert_eq!(of(Arch::Aarch64, 3000), 3000);
    }
}

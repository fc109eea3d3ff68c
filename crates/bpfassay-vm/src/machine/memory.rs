//! Memory of the guest.

use std::ffi::OsString;

use bpfassay_protocol::Arch;

use crate::device::Device;

/// Memory in MiB.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Size in MiB.
    pub mib: u32,
}

impl Memory {
    /// `mib`, or the next larger size at which QEMU for `arch` takes an initramfs of `initramfs` bytes.
    ///
    /// For riscv64, QEMU compares the size of the initramfs with the memory's size less its address, though memory
    /// begins at 2 GiB there (`riscv_load_initrd` in hw/riscv/boot.c: 128 MiB, in later versions 512 MiB, behind the kernel's address).
    /// Below that address the difference wraps around, and nothing is refused; a little above, everything is.
    #[must_use]
    pub fn for_initramfs(arch: Arch, mib: u32, initramfs: u64) -> Self {
        // The kernel is loaded behind the firmware: 2 MiB in QEMU 7.2 and 10.0.
        const FIRST: u32 = 2048 + 128;
        const LAST: u32 = 2048 + 512 + 16;
        let takes = LAST.saturating_add(u32::try_from(initramfs.div_ceil(1 << 20)).unwrap_or(u32::MAX));
        let is_refused = arch == Arch::Riscv64 && (FIRST..takes).contains(&mib);
        Self { mib: if is_refused { takes } else { mib } }
    }
}

impl Device for Memory {
    fn arguments(&self) -> Vec<OsString> {
        vec!["-m".into(), format!("{}M", self.mib).into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_qemu_refuses_an_initramfs_at_are_left_out() {
        let of = |arch, mib| Memory::for_initramfs(arch, mib, 900 << 20).mib;
        assert_eq!(of(Arch::Riscv64, 1024), 1024);
        assert_eq!(of(Arch::Riscv64, 2175), 2175);
        assert_eq!(of(Arch::Riscv64, 2176), 3476);
        assert_eq!(of(Arch::Riscv64, 3475), 3476);
        assert_eq!(of(Arch::Riscv64, 3477), 3477);
        assert_eq!(of(Arch::X86_64, 2176), 2176);
        assert_eq!(of(Arch::Aarch64, 3000), 3000);
    }
}

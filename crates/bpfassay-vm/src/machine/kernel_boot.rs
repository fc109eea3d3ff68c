// SPDX-License-Identifier: MIT OR Apache-2.0
//! Direct kernel boot: kernel, initramfs, command line.

use std::ffi::OsString;

use crate::device::MachineDevice;

/// Files and parameters that QEMU loads.
#[derive(Debug, Clone)]
pub(crate) struct BootFiles {
    /// Kernel image in a form that QEMU boots on the architecture (x86_64: bzImage; aarch64: Image
    /// or EFI zboot if QEMU supports it; riscv64: Image or EFI vmlinuz).
    pub(crate) kernel: OsString,
    /// Initramfs: one file of concatenated, uncompressed cpio segments.
    pub(crate) initrd: Option<OsString>,
    pub(crate) command_line: String,
}

impl MachineDevice for BootFiles {
    fn arguments(&self) -> Vec<OsString> {
        let mut all = vec!["-kernel".into(), self.kernel.clone()];
        if let Some(initrd) = &self.initrd {
            all.extend(["-initrd".into(), initrd.clone()]);
        }
        all.extend(["-append".into(), self.command_line.clone().into()]);
        all
    }
}

//! The board and what runs the guest's instructions on it.

use std::ffi::OsString;

use bpfassay_protocol::Arch;

use super::Device;
use crate::Accelerator;

/// Machine type and accelerator.
#[derive(Debug, Clone, Copy)]
pub struct Board {
    /// Architecture of the guest.
    pub arch: Arch,
    /// What runs the guest's instructions.
    pub accelerator: Accelerator,
}

impl Board {
    /// The machine type. Where QEMU has versions of it, the one of the oldest QEMU supported: the guest then sees the same
    /// hardware under every newer QEMU.
    pub(crate) fn machine_type(self) -> &'static str {
        match (self.arch, self.accelerator) {
            // Without what no guest here uses and firmware or kernel would spend time on.
            (Arch::X86_64, _) => "pc-q35-7.2,i8042=off,sata=off,smbus=off,usb=off",
            (Arch::Aarch64, Accelerator::Tcg) => "virt-7.2,gic-version=3",
            // The interrupt controller of the host: others are not virtualised by its processor.
            (Arch::Aarch64, Accelerator::Kvm) => "virt-7.2,gic-version=host",
            // This board has no versions. OpenSBI comes with QEMU as its default firmware.
            (Arch::Riscv64, _) => "virt",
        }
    }
}

impl Device for Board {
    fn arguments(&self) -> Vec<OsString> {
        let accelerator = match self.accelerator {
            Accelerator::Kvm => "kvm",
            // One host thread per vCPU also where QEMU would not do so by itself (x86_64 guest on aarch64 host) would be
            // wrong: memory ordering. So QEMU decides.
            Accelerator::Tcg => "tcg",
        };
        ["-machine", self.machine_type(), "-accel", accelerator].into_iter().map(OsString::from).collect()
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The board and what runs the guest's instructions on it.

use std::{ffi::OsString, fmt};

use bpfassay_protocol::Arch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::device::Device;

/// What runs the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    /// The host's processor, through Linux KVM.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}

/// Machine type and accelerator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Board {
    /// Architecture of the guest.
    pub(crate) arch: Arch,
    /// What runs the guest's instructions.
    pub(crate) accelerator: Accelerator,
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
        // Whether TCG has a host thread for each vCPU is left to QEMU: for an x86_64 guest on an aarch64 host that would break memory
        // ordering.
        vec!["-machine".into(), self.machine_type().into(), "-accel".into(), self.accelerator.to_string().into()]
    }
}

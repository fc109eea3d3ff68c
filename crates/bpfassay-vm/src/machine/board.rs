// SPDX-License-Identifier: MIT OR Apache-2.0
//! The board and the accelerator.

use std::{ffi::OsString, fmt};

use bpfassay_protocol::Arch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::device::MachineDevice;

/// The executor of the guest's instructions.
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

#[derive(Debug, Clone, Copy)]
pub(crate) struct Board {
    pub(crate) arch: Arch,
    pub(crate) accelerator: Accelerator,
}

impl Board {
    pub(crate) fn machine_type(self) -> &'static str {
        match self.accelerator {
            Accelerator::Tcg => self.arch.facts().machine_type,
            Accelerator::Kvm => self.arch.facts().kvm_machine_type,
        }
    }
}

impl MachineDevice for Board {
    fn arguments(&self) -> Vec<OsString> {
        // QEMU decides whether TCG has a host thread for each vCPU. Forcing it would break memory
        // ordering for an x86_64 guest on an aarch64 host.
        vec!["-machine".into(), self.machine_type().into(), "-accel".into(), self.accelerator.to_string().into()]
    }
}

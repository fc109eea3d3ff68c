// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processor model and number of vCPUs.

use std::ffi::OsString;

use bpfassay_protocol::Arch;

use crate::{device::MachineDevice, machine::Accelerator};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    pub(crate) arch: Arch,
    pub(crate) accelerator: Accelerator,
    pub(crate) count: u32,
}

impl Cpu {
    /// Returns the model as an argument of QEMU's `-cpu`.
    #[must_use]
    pub(crate) fn model(self) -> &'static str {
        match self.accelerator {
            Accelerator::Kvm => "host",
            Accelerator::Tcg => self.arch.facts().cpu_model,
        }
    }
}

impl MachineDevice for Cpu {
    fn arguments(&self) -> Vec<OsString> {
        vec!["-cpu".into(), self.model().into(), "-smp".into(), self.count.to_string().into()]
    }
}

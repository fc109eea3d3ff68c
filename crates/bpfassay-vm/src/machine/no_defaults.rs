// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns off defaults of QEMU: devices, display, network, and reboot.

use std::ffi::OsString;

use crate::device::{MachineDevice, arguments};

/// No default devices, no display, no NIC except the NIC of `network.rs`, no user configuration.
/// QEMU exits when the guest reboots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoDefaults;

impl MachineDevice for NoDefaults {
    fn arguments(&self) -> Vec<OsString> {
        arguments(["-no-user-config", "-nodefaults", "-display", "none", "-nic", "none", "-no-reboot"])
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the machine does not have by default: devices, a display, a network, and a reboot.

use std::ffi::OsString;

use crate::device::{Device, arguments};

/// No default devices, no display, no NIC beside that of `network.rs`, no user configuration; QEMU
/// exits where the guest would reboot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoDefaults;

impl Device for NoDefaults {
    fn arguments(&self) -> Vec<OsString> {
        arguments(["-no-user-config", "-nodefaults", "-display", "none", "-nic", "none", "-no-reboot"])
    }
}

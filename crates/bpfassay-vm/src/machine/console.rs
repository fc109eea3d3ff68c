// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first serial port: the kernel's console.

use std::ffi::OsString;

use bpfassay_protocol::Arch;

use crate::{
    device::{MachineDevice, arguments, channel, descriptor},
    guest_clock::GuestClock,
};

/// The serial console on an inherited socket or file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Console {
    pub(crate) arch: Arch,
    /// Whether the kernel prints all messages, not only warnings and worse.
    pub(crate) verbose: bool,
    pub(crate) clock: GuestClock,
}

impl Console {
    /// Returns the kernel's name of the port.
    #[must_use]
    pub(crate) fn tty(self) -> &'static str {
        self.arch.facts().console
    }
}

impl MachineDevice for Console {
    fn arguments(&self) -> Vec<OsString> {
        let mut all = channel("console", descriptor::CONSOLE, self.clock).to_vec();
        all.extend(arguments(["-serial", "chardev:console"]));
        all
    }

    fn kernel_parameters(&self) -> Vec<String> {
        // Level 5 shows everything up to KERN_WARNING, the level of back traces and `WARNING:`.
        // Each omitted character saves one exit from translated code.
        let level = if self.verbose { 7 } else { 5 };
        vec![format!("console={}", self.tty()), format!("loglevel={level}")]
    }
}

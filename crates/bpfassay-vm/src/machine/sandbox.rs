// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU's filter of system calls. It limits what a guest that has taken over its QEMU can request
//! of the host's kernel.

use std::ffi::OsString;

use crate::device::{MachineDevice, arguments};

/// The filter with all its denials: no obsolete system calls, no change of user, no other programs,
/// no change of priorities and processors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SyscallFilter {
    /// Whether the filter is on. It must be built into QEMU and supported by the host's kernel
    /// ([`crate::Confinement::sandbox`]).
    pub(crate) on: bool,
}

impl MachineDevice for SyscallFilter {
    fn arguments(&self) -> Vec<OsString> {
        if !self.on {
            return Vec::new();
        }
        arguments(["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"])
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The QMP monitor on an inherited socket.

use std::ffi::OsString;

use crate::device::{MachineDevice, arguments, descriptor, socket};

/// QMP for the life cycle: capabilities, status, quit, events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Monitor;

impl MachineDevice for Monitor {
    fn arguments(&self) -> Vec<OsString> {
        let mut all = socket("monitor", descriptor::MONITOR).to_vec();
        all.extend(arguments(["-mon", "chardev=monitor,mode=control"]));
        all
    }
}

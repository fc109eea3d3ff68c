// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plugin that counts executed instructions. No hardware: the guest does not see it.

use std::ffi::OsString;

use crate::device::{Device, descriptor, path_of};

/// A plugin of QEMU's translator, which writes what it counts to an inherited file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plugin {
    /// Whether it is loaded.
    pub(crate) on: bool,
}

impl Device for Plugin {
    fn arguments(&self) -> Vec<OsString> {
        if !self.on {
            return Vec::new();
        }
        let mut file = OsString::from("file=");
        file.push(path_of(descriptor::PLUGIN));
        file.push(format!(",output={}", descriptor::COUNTS));
        vec!["-plugin".into(), file]
    }
}

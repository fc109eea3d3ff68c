//! Memory of the guest.

use std::ffi::OsString;

use super::Device;

/// Memory in MiB.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Size in MiB.
    pub mib: u32,
}

impl Device for Memory {
    fn arguments(&self) -> Vec<OsString> {
        vec!["-m".into(), format!("{}M", self.mib).into()]
    }
}

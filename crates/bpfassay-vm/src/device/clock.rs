//! The clock of the guest.

use std::{ffi::OsString, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Device, arguments};

/// By which clock a guest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// Ordinary time of the host.
    Wall,
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Wall => "wall",
        })
    }
}

impl Device for Clock {
    fn arguments(&self) -> Vec<OsString> {
        match self {
            // The clock of the VM and not of the host: a guest that the host stops does not see time jump.
            Self::Wall => arguments(["-rtc", "base=utc,clock=vm"]),
        }
    }
}

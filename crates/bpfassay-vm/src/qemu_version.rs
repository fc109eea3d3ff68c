// SPDX-License-Identifier: MIT OR Apache-2.0
//! Versions of QEMU.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A version of QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct QemuVersion {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Micro number.
    pub micro: u32,
}

impl fmt::Display for QemuVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

/// The error for a text that is not a QEMU version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected MAJOR.MINOR.MICRO, found `{0}`")]
pub struct NotAVersion(String);

impl FromStr for QemuVersion {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || NotAVersion(text.chars().take(64).collect());
        let mut numbers = text.split('.').map(str::parse);
        match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor)), Some(Ok(micro)), None) => Ok(Self { major, minor, micro }),
            _ => Err(refused()),
        }
    }
}

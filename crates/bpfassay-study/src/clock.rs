// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock of a study.

use std::{fmt, str::FromStr};

use bpfassay_protocol::UnknownName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest time that a study can give, in milliseconds.
pub(crate) const DAY_MS: u64 = 24 * 3_600_000;

/// The clock that measures time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// Wall-clock time.
    Wall,
    /// The guest's own instructions, 1 ns each. The result is the same on every machine, but the
    /// clock needs TCG. It counts instructions and not cycles: cache misses and traps cost nothing.
    Instructions,
}

impl Clock {
    /// The names in study files.
    pub const NAMES: &'static [(&'static str, Self)] = &[("wall", Self::Wall), ("instructions", Self::Instructions)];

    /// The clock's name in study files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Instructions => "instructions",
        }
    }
}

impl FromStr for Clock {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, clock)| *clock).ok_or_else(|| UnknownName {
            kind: "clock",
            name: name.chars().take(64).collect(),
            known: Self::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        })
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

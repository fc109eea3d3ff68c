// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock of a study.

use std::{fmt, str::FromStr};

use bpfassay_protocol::UnknownName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest time that a study may name, in milliseconds.
pub(crate) const DAY_MS: u64 = 24 * 3_600_000;

/// The clock that time is measured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// Ordinary time.
    Wall,
    /// The guest's own instructions, 1 ns each: the same on every machine, only under TCG. Counts
    /// instructions, not cycles: cache misses and traps cost nothing.
    Instructions,
}

impl Clock {
    /// The names of study files.
    pub const NAMES: &'static [(&'static str, Self)] = &[("wall", Self::Wall), ("instructions", Self::Instructions)];

    /// The name of study files.
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

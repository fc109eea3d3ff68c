// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock of a guest.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The clock of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Clock", rename_all = "snake_case")]
pub enum GuestClock {
    /// The clock of the host.
    Wall,
    /// The guest's instructions, under TCG only. The guest's time advances by 1 ns with each
    /// instruction. When the guest is idle, its time jumps to the next timer. The guest's behaviour
    /// then depends only on what it was started with: it has no input, and its output goes to
    /// files, which never block it.
    Instructions,
}

impl GuestClock {
    /// Returns whether the guest has no input, and writes its output to files.
    #[must_use]
    pub const fn is_one_way(self) -> bool {
        matches!(self, Self::Instructions)
    }
}

impl fmt::Display for GuestClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Wall => "wall",
            Self::Instructions => "instructions",
        })
    }
}

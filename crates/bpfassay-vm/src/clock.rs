// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock of a guest.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The clock of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// The clock of the host.
    Wall,
    /// The guest's own instructions: its time advances by 1 ns with each of them, and to the next
    /// timer at once where it is idle. Only under TCG. What the guest does then depends on nothing
    /// but what it was started with, as long as nothing comes from outside: such a guest has no
    /// input, and its output goes to files, which never make it wait.
    Instructions,
}

impl Clock {
    /// Whether the guest's output goes to files, and it has no input.
    #[must_use]
    pub const fn is_one_way(self) -> bool {
        matches!(self, Self::Instructions)
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Wall => "wall",
            Self::Instructions => "instructions",
        })
    }
}

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
    /// The guest's own instructions: its time advances by 1 ns with each of them, and to the next timer at once where it
    /// has nothing to do. Only under TCG. What the guest does then depends on nothing but what it was started with, as
    /// long as nothing comes from outside: such a guest takes no input, and what it puts out goes to files, which never
    /// make it wait.
    Instructions,
}

impl Clock {
    /// Whether what the guest puts out goes to files, and nothing goes in.
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

/// Clock, calendar and randomness: all that a guest learns of the world in which it runs.
#[derive(Debug, Clone, Copy)]
pub struct ClockAndSeed {
    /// The clock.
    pub clock: Clock,
    /// Seed of all that is random in the machine; only under [`Clock::Instructions`].
    pub seed: u64,
}

impl Device for ClockAndSeed {
    fn arguments(&self) -> Vec<OsString> {
        match self.clock {
            // The clock of the VM and not of the host: a guest that the host stops does not see time jump.
            Clock::Wall => arguments(["-rtc", "base=utc,clock=vm"]),
            Clock::Instructions => {
                let mut words = arguments(["-icount", "shift=0,sleep=off"]);
                // The random generators of QEMU's processors and the seed that it hands to the kernel (docs/devel/replay.rst
                // and util/guest-random.c of QEMU). It takes 64 bits.
                words.extend(["-seed".into(), self.seed.to_string().into()]);
                words.extend(arguments(["-rtc", "base=2026-01-01T00:00:00,clock=vm"]));
                words
            }
        }
    }
}

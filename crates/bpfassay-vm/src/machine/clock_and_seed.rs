// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clock, calendar and randomness of the guest.

use std::ffi::OsString;

use crate::{
    Clock,
    device::{Device, arguments},
};

/// Everything outside of the guest on which its figures could depend: clock, calendar, randomness.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockAndSeed {
    /// The clock.
    pub(crate) clock: Clock,
    /// Seed of all that is random in the machine; only under [`Clock::Instructions`].
    pub(crate) seed: u64,
}

impl Device for ClockAndSeed {
    fn arguments(&self) -> Vec<OsString> {
        match self.clock {
            // The clock of the VM and not of the host: a guest that the host stops does not see
            // time jump.
            Clock::Wall => arguments(["-rtc", "base=utc,clock=vm"]),
            Clock::Instructions => {
                let mut all = arguments(["-icount", "shift=0,sleep=off"]);
                // The random generators of QEMU's processors and the seed that it passes to the
                // kernel (docs/devel/replay.rst and util/guest-random.c of QEMU). It takes 64 bits.
                all.extend(["-seed".into(), self.seed.to_string().into()]);
                all.extend(arguments(["-rtc", "base=2026-01-01T00:00:00,clock=vm"]));
                all
            }
        }
    }
}

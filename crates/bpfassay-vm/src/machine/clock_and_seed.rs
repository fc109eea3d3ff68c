// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clock, calendar and randomness of the guest.

use std::ffi::OsString;

use crate::{
    device::{MachineDevice, arguments},
    guest_clock::GuestClock,
};

/// Everything outside of the guest that could influence its figures: clock, calendar, randomness.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockAndSeed {
    pub(crate) clock: GuestClock,
    /// Seed of everything random in the machine, used under [`GuestClock::Instructions`].
    pub(crate) seed: u64,
}

impl MachineDevice for ClockAndSeed {
    fn arguments(&self) -> Vec<OsString> {
        match self.clock {
            // The VM's clock, not the host's: a guest that the host stops does not see time jump.
            GuestClock::Wall => arguments(["-rtc", "base=utc,clock=vm"]),
            GuestClock::Instructions => {
                let mut all = arguments(["-icount", "shift=0,sleep=off"]);
                // Seeds the random generators of QEMU's processors and the seed for the kernel
                // (docs/devel/replay.rst and util/guest-random.c of QEMU). QEMU accepts 64 bits.
                all.extend(["-seed".into(), self.seed.to_string().into()]);
                all.extend(arguments(["-rtc", "base=2026-01-01T00:00:00,clock=vm"]));
                all
            }
        }
    }
}

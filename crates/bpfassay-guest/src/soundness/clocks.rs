// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether the clocks were set, or their speed was changed.

use std::{collections::BTreeMap, io};

use rustix::time::{ClockId, clock_gettime};

use super::state_comparison::Facts;

/// How many readings are made. The closest one counts, because an emulated CPU can pause between
/// reading two clocks.
const ATTEMPTS: u32 = 16;

/// Readings closer than this, in nanoseconds, are close enough.
const CLOSE: i128 = 100_000;

/// Returns `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` in nanoseconds. The difference only changes
/// when somebody sets the clock.
pub(super) fn offset() -> Facts {
    let mut best: Option<(i128, i128)> = None;
    for _ in 0..ATTEMPTS {
        let before = nanoseconds(ClockId::Monotonic);
        let real = nanoseconds(ClockId::Realtime);
        let after = nanoseconds(ClockId::Monotonic);
        let (width, offset) = (after - before, real - before);
        if best.is_none_or(|(narrowest, _)| width < narrowest) {
            best = Some((width, offset));
        }
        if width <= CLOSE {
            break;
        }
    }
    let offset = best.map_or(0, |(_, offset)| offset);
    Ok(BTreeMap::from([("nanoseconds between CLOCK_MONOTONIC and CLOCK_REALTIME".to_owned(), offset.to_string())]))
}

/// Returns the speed of the clocks (adjtimex(2)).
pub(super) fn speed() -> Facts {
    // SAFETY: timex is plain data for which zero is valid, and with `modes` 0 the call only fills
    // it in.
    let timex = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        if libc::adjtimex(&raw mut timex) < 0 {
            return Err(io::Error::last_os_error().to_string());
        }
        timex
    };
    Ok(BTreeMap::from([
        ("frequency offset".to_owned(), timex.freq.to_string()),
        ("microseconds per tick".to_owned(), timex.tick.to_string()),
    ]))
}

fn nanoseconds(clock: ClockId) -> i128 {
    let time = clock_gettime(clock);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

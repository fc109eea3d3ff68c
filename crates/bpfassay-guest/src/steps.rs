// SPDX-License-Identifier: MIT OR Apache-2.0
//! When each step of the set-up ended.

use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, Result};

/// The steps so far, each with the nanoseconds since boot at which it ended.
#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<(String, u64)>);

impl Steps {
    /// Records that the step `name` ends now.
    pub(crate) fn ended(&mut self, name: impl Into<String>) -> Result<()> {
        self.0.push((name.into(), boottime_ns()?));
        Ok(())
    }

    pub(crate) fn take(self) -> Vec<(String, u64)> {
        self.0
    }
}

/// Returns the nanoseconds since boot (`CLOCK_BOOTTIME`).
pub(crate) fn boottime_ns() -> Result<u64> {
    now(ClockId::Boottime)
}

/// Returns the nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_ns() -> Result<u64> {
    now(ClockId::Monotonic)
}

fn now(clock: ClockId) -> Result<u64> {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec)
        .ok()
        .and_then(|seconds| seconds.checked_mul(1_000_000_000)?.checked_add(u64::try_from(time.tv_nsec).ok()?))
        .ok_or_else(|| {
            Error::Order(format!("the clock shows {}.{:09} s: not a time since boot", time.tv_sec, time.tv_nsec))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_keep_their_order_and_time_goes_on() {
        let mut steps = Steps::default();
        steps.ended("one").unwrap();
        steps.ended("two").unwrap();
        let steps = steps.take();
        assert_eq!(steps.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        assert!(steps[0].1 <= steps[1].1);
    }
}

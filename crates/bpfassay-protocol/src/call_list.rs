// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of the calls with which a workload moved its data.

use serde::{Deserialize, Serialize};

/// Largest number of ranks of one run.
pub const MAX_RANKS: u32 = 1024;

/// Times of the calls that moved data in one phase, in nanoseconds of the guest's clock. A call's
/// time is from the end of the previous call (for the first one, from the end of `open`) to its own
/// end. So each call needs one reading of the clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CallTimes {
    /// Ranks that took part. The figures are over the calls of all ranks.
    pub ranks: u32,
    /// Number of calls. A partial call counts as one with the calls that moved the rest.
    pub calls: u64,
    /// The sum of the calls' times.
    pub sum_ns: u64,
    /// The part of the ranks' phases, from the first open to the last close, outside of calls:
    /// open, fsync, close.
    pub tail_ns: u64,
    /// The longest call.
    pub max_ns: u64,
    /// The distribution of the times; `None` if there were more calls than times were kept for.
    pub distribution: Option<CallDistribution>,
}

/// The trimmed mean leaves out one in this many calls as the fastest, and as many as the slowest.
///
/// Interrupts slow down fewer calls than that: up to 14 of 256 in a phase of `quick` (aarch64
/// 6.12). More would drop a cost that every other call of a kind has, such as a new page for a slab
/// cache. For writes, less is better: with a tenth, the mean differed twice as much between seeds
/// as with a twentieth.
const TRIMMED: usize = 16;

/// The distribution of call times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CallDistribution {
    /// The median; for an even number of calls, the upper one of the two middle ones.
    pub median_ns: u64,
    /// Number of calls without the fastest and the slowest sixteenth.
    pub trimmed_calls: u64,
    /// Sum of the times of these calls. Divided by their number, it is the trimmed mean.
    pub trimmed_sum_ns: u64,
}

impl CallDistribution {
    /// Computes the distribution of `times`, and sorts them; `None` if there are none.
    pub fn of(times: &mut [u64]) -> Option<Self> {
        times.sort_unstable();
        let trimmed = times.len() / TRIMMED;
        let middle = times.get(trimmed..times.len() - trimmed)?;
        Some(Self {
            median_ns: *times.get(times.len() / 2)?,
            trimmed_calls: middle.len() as u64,
            trimmed_sum_ns: middle.iter().fold(0, |sum, &time| sum.saturating_add(time)),
        })
    }
}

impl CallTimes {
    /// Checks times that a workload reports for a phase that took `interval_ns`. The workload
    /// counted `calls` calls.
    ///
    /// # Errors
    /// The reason why the times are impossible, as a predicate.
    pub fn check(&self, interval_ns: u64, calls: u64) -> Result<(), String> {
        let Self { ranks, sum_ns, tail_ns, max_ns, .. } = *self;
        if ranks == 0 || ranks > MAX_RANKS {
            return Err(format!("reported times of {ranks} ranks"));
        }
        if self.calls == 0 || self.calls > calls {
            return Err(format!("reported times of {} calls and made {calls}", self.calls));
        }
        let (within, together) =
            (u128::from(interval_ns) * u128::from(ranks), u128::from(sum_ns) + u128::from(tail_ns));
        if together > within {
            return Err(format!("reported {together} ns in a phase in which its {ranks} ranks had {within} ns"));
        }
        if max_ns > sum_ns || u128::from(max_ns) * u128::from(self.calls) < u128::from(sum_ns) {
            return Err(format!("reported {max_ns} ns for the longest of {} calls that took {sum_ns} ns", self.calls));
        }
        match self.distribution {
            Some(CallDistribution { median_ns, trimmed_calls, trimmed_sum_ns })
                if median_ns > max_ns
                    || trimmed_calls != self.calls - 2 * (self.calls / TRIMMED as u64)
                    || trimmed_sum_ns > sum_ns =>
            {
                Err(format!(
                    "reported a median of {median_ns} ns and {trimmed_sum_ns} ns for {trimmed_calls} of {} calls that \
                     took {sum_ns} ns, the longest {max_ns} ns",
                    self.calls
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times() -> CallTimes {
        let mut all = [5, 1, 2, 3, 4, 100, 6, 7];
        let distribution = CallDistribution::of(&mut all);
        CallTimes { ranks: 1, calls: 8, sum_ns: 128, tail_ns: 12, max_ns: 100, distribution }
    }

    #[test]
    fn the_trimmed_mean_is_without_the_fastest_and_the_slowest_sixteenth() {
        let of = |times: &mut [u64]| CallDistribution::of(times);
        let found = |median_ns, trimmed_calls, trimmed_sum_ns| {
            Some(CallDistribution { median_ns, trimmed_calls, trimmed_sum_ns })
        };
        let mut of_forty: Vec<u64> = (0..40).rev().collect();
        assert_eq!(of(&mut of_forty), found(20, 36, (2..38).sum()));
        assert_eq!(of(&mut [5, 1, 2, 3, 4, 100, 6, 7]), found(5, 8, 128));
        assert_eq!(of(&mut [9]), found(9, 1, 9));
        assert_eq!(of(&mut [9, 1, 2]), found(2, 3, 12));
        assert_eq!(of(&mut []), None);
    }

    #[test]
    fn impossible_times_are_refused() {
        assert_eq!(times().check(140, 8), Ok(()));
        // A partial transfer makes more calls than there are transfers.
        assert_eq!(times().check(1000, 9), Ok(()));
        let refused = |change: fn(&mut CallTimes)| {
            let mut times = times();
            change(&mut times);
            times.check(140, 8).unwrap_err()
        };
        assert!(times().check(139, 8).unwrap_err().contains("140 ns in a phase in which its 1 ranks had 139 ns"));
        assert!(times().check(140, 7).unwrap_err().contains("8 calls and made 7"));
        assert!(refused(|times| times.calls = 0).contains("0 calls"));
        assert!(refused(|times| times.ranks = 0).contains("0 ranks"));
        assert!(refused(|times| times.ranks = MAX_RANKS + 1).contains("1025 ranks"));
        assert!(refused(|times| times.max_ns = 15).contains("longest"));
        assert!(refused(|times| times.max_ns = 129).contains("longest"));
        let change = |times: &mut CallTimes| times.distribution.as_mut().unwrap().trimmed_calls = 5;
        let mut changed = times();
        change(&mut changed);
        assert!(changed.check(140, 8).unwrap_err().contains("for 5 of 8 calls"));
        assert!(refused(|times| times.tail_ns = u64::MAX).contains("in a phase"));
    }
}

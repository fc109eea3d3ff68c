// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how long the calls of a phase take. The clock is read once per call, into memory that
//! was written before the phase begins. Timing therefore costs each configuration the same, and
//! causes neither system calls nor page faults.

use std::{sync::atomic::Ordering, time::Duration};

use bpfassay_ior::{Api, Options};
use bpfassay_protocol::{
    call_list::{CallDistribution, CallTimes},
    nanoseconds,
};

use super::{EngineError, ranks::Team};

/// The most call times that are kept of a phase, over all ranks. If there are more calls, their
/// number and the sum, tail and maximum of the times are measured, but not the distribution.
const MOST: u64 = 1 << 20;

/// Returns how many call times each of `ranks` needs space for, in any of `tests`.
pub(crate) fn room(tests: &[Options], ranks: u32) -> u32 {
    let transfers = |test: &Options| test.segments.saturating_mul(test.block_size / test.transfer_size.max(1));
    let needed = tests.iter().filter(|test| is_timed(test)).map(transfers).max().unwrap_or(0);
    needed.min(MOST / u64::from(ranks.max(1))) as u32
}

/// Returns whether the calls of a test are timed. Mapped files are transferred without calls.
pub(crate) fn is_timed(options: &Options) -> bool {
    options.api != Api::Mmap
}

/// The calls of one rank in the current phase.
pub(crate) struct Timed<'a> {
    team: &'a Team,
    /// End of the last call.
    since: Duration,
    calls: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl<'a> Timed<'a> {
    pub(crate) const fn new(team: &'a Team) -> Self {
        Self { team, since: Duration::ZERO, calls: 0, sum_ns: 0, max_ns: 0 }
    }

    /// Removes all calls, and touches the memory. Call this before the phase begins.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.team);
        for time in self.team.times(self.team.rank()) {
            time.store(0, Ordering::Relaxed);
        }
    }

    /// Notes that the next call begins `now`.
    pub(crate) const fn begin(&mut self, now: Duration) {
        self.since = now;
    }

    /// Notes that a call ended `now`, and the next one begins.
    pub(crate) fn ended(&mut self, now: Duration) {
        let took = nanoseconds(now.saturating_sub(self.since));
        if let Some(time) = self.team.times(self.team.rank()).get(self.calls as usize) {
            time.store(took, Ordering::Relaxed);
        }
        self.calls += 1;
        self.sum_ns = self.sum_ns.saturating_add(took);
        self.max_ns = self.max_ns.max(took);
        self.since = now;
    }

    /// Returns the call times of all ranks in a phase that took this rank `whole`; `None` if there
    /// were no calls. All ranks must call this after the phase.
    pub(crate) fn of_all(&self, whole: Duration) -> Result<Option<CallTimes>, EngineError> {
        let Self { team, calls, sum_ns, max_ns, .. } = *self;
        let tail_ns = nanoseconds(whole).saturating_sub(sum_ns);
        let all = team.exchange([calls, sum_ns, tail_ns, max_ns])?;
        let sum = |index: usize| all.iter().fold(0, |sum: u64, rank| sum.saturating_add(rank[index]));
        let mut kept = Vec::new();
        // The first rank alone reports.
        for (rank, [calls, ..]) in (0..).zip(&all).filter(|_| team.rank() == 0) {
            kept.extend(team.times(rank).iter().take(*calls as usize).map(|time| time.load(Ordering::Relaxed)));
        }
        let is_whole = kept.len() as u64 == sum(0);
        Ok((sum(0) > 0).then(|| CallTimes {
            ranks: team.size(),
            calls: sum(0),
            sum_ns: sum(1),
            tail_ns: sum(2),
            max_ns: all.iter().map(|rank| rank[3]).max().unwrap_or_default(),
            distribution: CallDistribution::of(&mut kept).filter(|_| is_whole),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(team: &Team, calls: &[u64]) -> Option<CallTimes> {
        let mut timed = Timed::new(team);
        timed.clear();
        let mut now = Duration::from_secs(7);
        timed.begin(now);
        for &took in calls {
            now += Duration::from_nanos(took);
            timed.ended(now);
        }
        timed.of_all(now - Duration::from_secs(7) + Duration::from_nanos(50)).unwrap()
    }

    #[test]
    fn the_figures_are_over_the_calls_of_all_ranks() {
        let teams = Team::world(2, 4).unwrap();
        let [first, _] = std::thread::scope(|scope| {
            let calls: [&[u64]; 2] = [&[1, 2, 3, 4], &[10, 20]];
            let ranks: Vec<_> =
                teams.iter().zip(calls).map(|(team, calls)| scope.spawn(|| timed(team, calls))).collect();
            <[_; 2]>::try_from(ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()).unwrap()
        });
        let distribution = CallDistribution { median_ns: 4, trimmed_calls: 6, trimmed_sum_ns: 40 };
        let expected =
            CallTimes { ranks: 2, calls: 6, sum_ns: 40, tail_ns: 100, max_ns: 20, distribution: Some(distribution) };
        assert_eq!(first, Some(expected));
    }

    #[test]
    fn more_calls_than_there_is_room_for_have_no_distribution_and_none_have_no_figures() {
        let team = &Team::world(1, 2).unwrap()[0];
        let times = timed(team, &[5, 6, 7]).unwrap();
        assert_eq!((times.calls, times.sum_ns, times.max_ns, times.distribution), (3, 18, 7, None));
        assert_eq!(timed(team, &[]), None);
        // Calls of the previous phase are not counted.
        assert_eq!(timed(team, &[9]).unwrap().distribution.unwrap().median_ns, 9);
    }

    #[test]
    fn room_is_for_the_largest_test_that_is_timed_and_bounded() {
        let test =
            |transfer_size, api| Options { block_size: 64, transfer_size, segments: 2, api, ..Options::default() };
        assert_eq!(room(&[test(8, Api::Posix), test(1, Api::Mmap)], 4), 16);
        let large = Options { block_size: 1 << 40, ..test(1, Api::Posix) };
        assert_eq!(room(&[large], 1024), 1024);
    }
}

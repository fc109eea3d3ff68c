// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the kernel does background work, and an instant between such work.
//!
//! Every 2 s the kernel updates pressure stall information (`psi_avgs_work`, kernel/sched/psi.c)
//! and the memory controller's statistics (`flush_memcg_stats_dwork`, mm/memcontrol.c). Each of the
//! two keeps the other running. In one of three or four reads of 64 MiB from the page cache, this
//! is 0.05 % of the instructions. On Linux 7.2, each idle thread of the NFS server wakes up every 5
//! s (`svc_recv`, net/sunrpc/svc_xprt.c).
//!
//! None of this can be switched off. Therefore the agent counts context switches for one period
//! before a phase, and begins the phase where such work is not expected for the longest time.

use std::{
    fs::File,
    io::{Read as _, Seek as _},
};

use crate::{
    error::{Error, Result},
    proc::cpu_activity,
};

/// Time between two looks, in nanoseconds.
pub(crate) const STEP: u64 = 50_000_000;

/// How long the agent listens, in nanoseconds: the longest period, and the delay of its timer.
pub(crate) const LISTENING: u64 = SERVER_WORK.period + SERVER_WORK.late;

/// Periodic work of the kernel.
#[derive(Debug, Clone, Copy)]
struct Recurrence {
    /// Nanoseconds.
    period: u64,
    /// How late the timer can be, in nanoseconds (kernel/time/timer.c). The kernel rounds 2 s up to
    /// 64 ticks at 1000 Hz, or to 8 ticks at 250 or 100 Hz. It rounds 5 s up to 512 ticks at 1000
    /// Hz, 64 at 250 Hz, or 8 at 100 Hz. One more tick is added.
    late: u64,
}

/// `PSI_FREQ` and `FLUSH_TIME` in the kernel's sources.
const STATISTICS_WORK: Recurrence = Recurrence { period: 2_000_000_000, late: 100_000_000 };

/// The timeout with which `svc_recv` is called.
const SERVER_WORK: Recurrence = Recurrence { period: 5_000_000_000, late: 550_000_000 };

/// The phase begins within this time, in nanoseconds. Each work of 2 s is expected once in a
/// shorter time.
const HORIZON: u64 = 2_100_000_000;

/// Phases begin at multiples of this time, in nanoseconds. The next timer tick, at 100, 250 or 1000
/// Hz, is then equally far away in each phase.
pub(crate) const RASTER: u64 = 100_000_000;

const STATISTICS: &str = "/proc/stat";

/// Counts context switches, from `/proc/stat`.
#[derive(Debug)]
pub(crate) struct Switches {
    /// The file stays open while the agent listens, because closing a file is work for the kernel.
    file: File,
    text: String,
}

impl Switches {
    /// Opens `/proc/stat`.
    ///
    /// # Errors
    /// `/proc/stat` cannot be opened.
    pub(crate) fn open() -> Result<Self> {
        Ok(Self { file: File::open(STATISTICS).map_err(Error::file("open", STATISTICS))?, text: String::new() })
    }

    /// Returns the number of context switches since boot.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read, or does not show the number.
    pub(crate) fn read(&mut self) -> Result<u64> {
        self.text.clear();
        let read = self.file.rewind().and_then(|()| self.file.read_to_string(&mut self.text));
        let _length = read.map_err(Error::file("read", STATISTICS))?;
        cpu_activity::context_switches(&self.text)
            .ok_or_else(|| Error::unexpected(STATISTICS, "a line `ctxt N`", &self.text))
    }
}

/// Beginning and end of work that was seen between two looks.
type WorkInterval = (u64, u64);

impl Recurrence {
    /// Returns when work in `interval` recurs for the `times`-th time.
    const fn again(self, interval: WorkInterval, times: u64) -> WorkInterval {
        let later = self.period.saturating_mul(times);
        (interval.0.saturating_add(later), interval.1.saturating_add(later).saturating_add(self.late))
    }

    /// Returns whether the work in `later` can be the next occurrence of the work in `earlier`.
    const fn connects(self, earlier: WorkInterval, later: WorkInterval) -> bool {
        let again = self.again(earlier, 1);
        later.1 >= again.0 && later.0 <= again.1
    }
}

/// Returns the instant at which a phase begins, in nanoseconds of the same clock as `looks`. Each
/// look is a time and the number of context switches by then. The result is not before `earliest`,
/// and at most [`HORIZON`] later.
///
/// Between two looks with the smallest number of context switches, only the agent ran. Work that
/// was seen again after 2 s is expected after 2 s, other work after 5 s.
pub(crate) fn beginning(looks: &[(u64, u64)], earliest: u64) -> u64 {
    let steps = || looks.windows(2).map(|pair| ((pair[0].0, pair[1].0), pair[1].1.saturating_sub(pair[0].1)));
    let fewest = steps().map(|(_, switches)| switches).min().unwrap_or(0);
    let work: Vec<WorkInterval> =
        steps().filter(|(_, switches)| *switches > fewest).map(|(interval, _)| interval).collect();
    let end = earliest.saturating_add(2 * HORIZON);
    let expected: Vec<WorkInterval> = work
        .iter()
        .flat_map(|&seen| {
            let connects = |&other| STATISTICS_WORK.connects(seen, other) || STATISTICS_WORK.connects(other, seen);
            let recurrence = if work.iter().any(connects) { STATISTICS_WORK } else { SERVER_WORK };
            let times = 1..=end.saturating_sub(seen.0) / recurrence.period;
            times.map(move |times| recurrence.again(seen, times))
        })
        .collect();
    let silence = |instant: u64| {
        let next = expected.iter().filter(|(_, until)| *until > instant).map(|(from, _)| from.saturating_sub(instant));
        next.min().unwrap_or(u64::MAX)
    };
    let rasters = earliest.div_ceil(RASTER)..=earliest.saturating_add(HORIZON) / RASTER;
    let instants = rasters.map(|raster| raster.saturating_mul(RASTER)).map(|instant| (silence(instant), instant));
    // The first of equally long silences wins.
    let longest = instants.reduce(|longest, next| if next.0 > longest.0 { next } else { longest });
    longest.map_or(earliest, |(_, instant)| instant)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The earliest time at which the agent is ready after [`looks`].
    const READY: u64 = 6_700 * MS;

    /// Makes looks every 50 ms from 1 s on, with two context switches each, and three more at
    /// `work`, in milliseconds.
    fn looks(work: &[u64]) -> Vec<(u64, u64)> {
        let mut switches = 0;
        let end = |step: u64| 1_000 + 50 * step;
        let look = |step| {
            let began = end(step) - 50;
            switches += 2 + 3 * work.iter().filter(|ms| (began..end(step)).contains(*ms)).count() as u64;
            (end(step) * MS, switches)
        };
        (0..=LISTENING / STEP).map(look).collect()
    }

    #[test]
    fn a_phase_begins_where_no_work_is_expected_for_the_longest_time() {
        for (work, begins_at) in [
            // Work every 2 s: until 7300 and from 9150 ms on.
            (&[1_175, 3_190, 5_205][..], 7_400),
            // The work at 2325 ms is ambiguous: possible from 7300 to 7900 ms.
            (&[1_175, 2_325, 3_190, 5_205], 7_900),
            // Two series of work every 2 s: until 7300, from 8000 to 8150, and from 9150 ms on.
            (&[1_175, 2_025, 3_190, 4_040, 5_205, 6_055], 8_200),
            // A single occurrence recurs at 11300 ms at the earliest.
            (&[6_310], 6_700),
        ] {
            let begun = beginning(&looks(work), READY);
            assert_eq!(begun, begins_at * MS, "{work:?}");
        }
    }

    #[test]
    fn without_work_or_with_work_at_each_look_it_begins_soon() {
        assert_eq!(beginning(&looks(&[]), READY + 1), READY + RASTER);
        assert_eq!(beginning(&[], READY), READY);
        let always: Vec<u64> = (0..200).map(|step| 1_000 + 50 * step).collect();
        let begun = beginning(&looks(&always), READY);
        assert!((READY..READY + HORIZON).contains(&begun), "{begun}");
    }

    #[test]
    fn the_kernel_reports_changes_between_threads() {
        let mut switches = Switches::open().unwrap();
        let before = switches.read().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(switches.read().unwrap() > before);
    }
}

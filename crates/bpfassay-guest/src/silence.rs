// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the kernel works by itself, and which instant lies between such work.
//!
//! Pressure stall information (`psi_avgs_work`, kernel/sched/psi.c) and the statistics of the
//! memory controller (`flush_memcg_stats_dwork`, mm/memcontrol.c) are brought up to date every 2 s,
//! and each keeps the other going. In a read of 64 MiB from the page cache, this is 0.05 % of the
//! instructions, in one run of three or four. On Linux 7.2, each idle thread of the NFS server
//! wakes up every 5 s (`svc_recv`, net/sunrpc/svc_xprt.c). None of it can be switched off. So the
//! agent listens for one period before a phase, by how often the CPU changes between threads, and
//! begins the phase where no such work is expected for the longest time.

use std::{
    fs::File,
    io::{Read as _, Seek as _},
};

use crate::{
    error::{Error, Result},
    proc::activity,
};

/// Between two looks, in nanoseconds.
pub(crate) const STEP: u64 = 50_000_000;

/// How long the agent listens, in nanoseconds: the longest period, and what its timer is late by.
pub(crate) const LISTENING: u64 = SERVER_WORK.period + SERVER_WORK.late;

/// Work of the kernel's own that comes again.
#[derive(Debug, Clone, Copy)]
struct Recurrence {
    /// In nanoseconds.
    period: u64,
    /// How late its timer may be, in nanoseconds: the kernel rounds one of 2 s up to 64 ticks of
    /// 1000 Hz or to 8 of 250 or 100 Hz, one of 5 s to 512 ticks of 1000 Hz, 64 of 250 Hz or 8 of
    /// 100 Hz, and a tick more (kernel/time/timer.c).
    late: u64,
}

/// `PSI_FREQ` and `FLUSH_TIME` of the kernel's sources.
const STATISTICS_WORK: Recurrence = Recurrence { period: 2_000_000_000, late: 100_000_000 };

/// The time that `svc_recv` is called with.
const SERVER_WORK: Recurrence = Recurrence { period: 5_000_000_000, late: 550_000_000 };

/// The phase begins within this time, in nanoseconds: in a shorter one, each work of 2 s is
/// expected once.
const HORIZON: u64 = 2_100_000_000;

/// Phases begin at multiples of it, in nanoseconds: the tick of the timer, at 100, 250 or 1000 Hz,
/// is then as far away in each.
pub(crate) const RASTER: u64 = 100_000_000;

const STATISTICS: &str = "/proc/stat";

/// How often the CPU changes between threads, by `/proc/stat`.
#[derive(Debug)]
pub(crate) struct Switches {
    /// Open for as long as the agent listens: to close a file is work for the kernel.
    file: File,
    text: String,
}

impl Switches {
    /// # Errors
    /// `/proc/stat` cannot be opened.
    pub(crate) fn open() -> Result<Self> {
        Ok(Self { file: File::open(STATISTICS).map_err(Error::file("open", STATISTICS))?, text: String::new() })
    }

    /// Changes between threads since the boot.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read, or does not show them.
    pub(crate) fn read(&mut self) -> Result<u64> {
        self.text.clear();
        let read = self.file.rewind().and_then(|()| self.file.read_to_string(&mut self.text));
        let _length = read.map_err(Error::file("read", STATISTICS))?;
        activity::context_switches(&self.text)
            .ok_or_else(|| Error::unexpected(STATISTICS, "a line `ctxt N`", &self.text))
    }
}

/// Work between two looks: from, and until.
type Interval = (u64, u64);

impl Recurrence {
    /// When work in `interval` comes again for the `times`-th time.
    const fn again(self, interval: Interval, times: u64) -> Interval {
        let later = self.period.saturating_mul(times);
        (interval.0.saturating_add(later), interval.1.saturating_add(later).saturating_add(self.late))
    }

    /// Whether the work in `later` can be that in `earlier`, come again.
    const fn connects(self, earlier: Interval, later: Interval) -> bool {
        let again = self.again(earlier, 1);
        later.1 >= again.0 && later.0 <= again.1
    }
}

/// The instant at which a phase begins, in nanoseconds of the same clock as `looks`: when the agent
/// looked, and how often the CPU had changed between threads by then. Not before `earliest`, and
/// not after [`HORIZON`] more.
///
/// Between two looks that are as near as any, only the agent ran. Work that was seen again after 2
/// s is expected after 2 s, other work after 5 s.
pub(crate) fn beginning(looks: &[(u64, u64)], earliest: u64) -> u64 {
    let steps = || looks.windows(2).map(|pair| ((pair[0].0, pair[1].0), pair[1].1.saturating_sub(pair[0].1)));
    let fewest = steps().map(|(_, switches)| switches).min().unwrap_or(0);
    let work: Vec<Interval> =
        steps().filter(|(_, switches)| *switches > fewest).map(|(interval, _)| interval).collect();
    let end = earliest.saturating_add(2 * HORIZON);
    let expected: Vec<Interval> = work
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
    // Of equally long silences the first.
    let longest = instants.reduce(|longest, next| if next.0 > longest.0 { next } else { longest });
    longest.map_or(earliest, |(_, instant)| instant)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// When the agent is ready at the earliest, after [`looks`].
    const READY: u64 = 6_700 * MS;

    /// Looks every 50 ms from 1 s on, with two changes of thread each, and three more at `work`, in
    /// milliseconds.
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
            // Every 2 s: by 7300 and from 9150 ms on.
            (&[1_175, 3_190, 5_205][..], 7_400),
            // And at 2325 only: in doubt from 7300 to 7900 ms.
            (&[1_175, 2_325, 3_190, 5_205], 7_900),
            // Every 2 s twice: by 7300, from 8000 to 8150, and from 9150 ms on.
            (&[1_175, 2_025, 3_190, 4_040, 5_205, 6_055], 8_200),
            // Once: not before 11300 ms.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the kernel works by itself, and which instant lies between such work.
//!
//! Pressure stall information (`psi_avgs_work`, kernel/sched/psi.c) and the statistics of the memory controller (`flush_memcg_stats_dwork`, mm/memcontrol.c)
//! are brought up to date every 2 s, and each keeps the other going. In a read of 64 MiB from the page cache, this is 0.05 % of the instructions, in one run of
//! three or four. They cannot be switched off. So the agent listens for one period before a phase, by how often the CPU changes between threads, and begins
//! the phase where the longest silence begins, one period later.

use std::{fs::File, os::unix::fs::FileExt as _, str};

use crate::error::{Error, Result};

const STATISTICS: &str = "/proc/stat";

/// Between two looks, in nanoseconds.
pub(crate) const STEP: u64 = 20_000_000;

/// How long the agent listens, in nanoseconds: a period, and what timers of the kernel are late by.
pub(crate) const LISTENING: u64 = PERIOD + LATE;

/// The period of such work, in nanoseconds: `PSI_FREQ` and `FLUSH_TIME` of the kernel's sources.
const PERIOD: u64 = 2_000_000_000;

/// How late a timer of 2 s may be, in nanoseconds: the kernel rounds it up to 64 ticks of 1000 Hz or to 8 of 250 or 100 Hz, and a tick more (kernel/time/timer.c).
const LATE: u64 = 100_000_000;

/// Phases begin at multiples of it, in nanoseconds: the tick of the timer, at 100, 250 or 1000 Hz, is then as far away in each.
pub(crate) const RASTER: u64 = 100_000_000;

/// How often the CPU changes between threads, by `/proc/stat`.
#[derive(Debug)]
pub(crate) struct Switches {
    /// Open for as long as the agent listens: to close a file is work for the kernel.
    file: File,
}

impl Switches {
    /// # Errors
    /// `/proc/stat` cannot be opened.
    pub(crate) fn open() -> Result<Self> {
        Ok(Self { file: File::open(STATISTICS).map_err(Error::file("open", STATISTICS))? })
    }

    /// Changes between threads since the boot.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read, or does not show them.
    pub(crate) fn read(&self) -> Result<u64> {
        let mut bytes = [0; 32 << 10];
        let mut length = 0;
        while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, length as u64).map_err(Error::file("read", STATISTICS))? {
                0 => break,
                read => length = length.saturating_add(read),
            }
        }
        let text = str::from_utf8(bytes.get(..length).unwrap_or_default()).unwrap_or_default();
        let found = text.lines().find_map(|line| line.strip_prefix("ctxt ")?.trim().parse().ok());
        found.ok_or_else(|| Error::unexpected(STATISTICS, "a line `ctxt N`", text))
    }
}

/// The instant at which a phase begins, in nanoseconds of the same clock as `looks`: when the agent looked, and how often the CPU had changed between threads by
/// then. Not before `earliest`.
///
/// Between two looks that are as near as any, only the agent ran.
pub(crate) fn beginning(looks: &[(u64, u64)], earliest: u64) -> u64 {
    let steps = || looks.windows(2).map(|pair| (pair[1].0, pair[1].1.saturating_sub(pair[0].1)));
    let fewest = steps().map(|(_, switches)| switches).min().unwrap_or(0);
    let work: Vec<u64> = steps().filter(|(_, switches)| *switches > fewest).map(|(instant, _)| instant).collect();
    // The first comes again after the last.
    let next = work.iter().skip(1).copied().chain(work.first().map(|first| first.saturating_add(PERIOD)));
    let silences = work.iter().zip(next).map(|(begun, end)| (end.saturating_sub(*begun), *begun));
    // Of equally long ones the first.
    let longest = silences.reduce(|longest, silence| if silence.0 > longest.0 { silence } else { longest });
    let mut instant = longest.map_or(earliest, |(_, begun)| begun.saturating_add(PERIOD + LATE));
    while instant < earliest {
        instant = instant.saturating_add(PERIOD + LATE);
    }
    instant.div_ceil(RASTER).saturating_mul(RASTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Looks every 20 ms, with two changes of thread each, and three more at `work`, in milliseconds.
    fn looks(work: &[u64]) -> Vec<(u64, u64)> {
        let mut switches = 0;
        let end = |step: u64| 1_000 + 20 * step;
        let steps = LISTENING / STEP;
        let look = |step| {
            let began = end(step) - 20;
            switches += 2 + 3 * work.iter().filter(|ms| (began..end(step)).contains(*ms)).count() as u64;
            (end(step) * MS, switches)
        };
        (0..=steps).map(look).collect()
    }

    #[test]
    fn a_phase_begins_after_the_work_that_is_followed_by_the_longest_silence() {
        // Seen by the look after it.
        for (work, begins_at) in [
            // Comes again at 3105 to 3205 ms.
            (&[1_105][..], 3_300),
            (&[1_105, 1_405], 3_600),
            (&[1_105, 2_605], 3_300),
            // The silence lasts from the last to the first of the next period.
            (&[1_105, 1_205, 1_305, 1_405], 3_600),
            // The same work twice: 20 ms late the second time.
            (&[1_025, 3_045], 3_200),
        ] {
            let looks = looks(work);
            assert_eq!(beginning(&looks, looks.last().unwrap().0), begins_at * MS, "{work:?}");
        }
    }

    #[test]
    fn without_work_or_with_work_at_each_look_it_begins_soon() {
        let silent = looks(&[]);
        assert_eq!(beginning(&silent, 3_110 * MS), 3_200 * MS);
        assert_eq!(beginning(&[], 3_100 * MS), 3_100 * MS);
        let always: Vec<u64> = (0..200).map(|step| 1_000 + 20 * step).collect();
        let begun = beginning(&looks(&always), 3_110 * MS);
        assert!((3_110 * MS..3_110 * MS + PERIOD + LATE + RASTER).contains(&begun), "{begun}");
    }

    #[test]
    fn a_phase_that_is_ready_late_begins_one_period_later() {
        let looks = looks(&[1_105]);
        assert_eq!(beginning(&looks, 3_301 * MS), 5_400 * MS);
    }

    #[test]
    fn the_kernel_reports_changes_between_threads() {
        let switches = Switches::open().unwrap();
        let before = switches.read().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(switches.read().unwrap() > before);
    }
}

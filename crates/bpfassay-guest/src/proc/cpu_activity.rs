// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work of the kernel in addition to moving bytes, for comparison between runs. The counters are
//! read at the barriers, outside the interval that is timed.

use std::{collections::BTreeMap, fs};

use bpfassay_protocol::message::PhaseActivity;

/// Counters since boot. A counter that cannot be read is left out: only a diagnosis depends on it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activity {
    /// RPCs sent for the mount, by procedure. The caller adds them from mountstats.
    pub(crate) rpcs: Option<BTreeMap<String, u64>>,
    page_allocations: Option<u64>,
    context_switches: Option<u64>,
    softirqs: Option<u64>,
}

impl Activity {
    /// Reads the counters of the kernel as a whole.
    pub(crate) fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self::of(&text("/proc/stat"), &text("/proc/vmstat"))
    }

    /// Parses `/proc/stat` (`show_stat` in fs/proc/stat.c) and `/proc/vmstat` (`vmstat_text` in
    /// mm/vmstat.c).
    fn of(stat: &str, vmstat: &str) -> Self {
        let of_zones = vmstat.lines().filter_map(|line| line.strip_prefix("pgalloc_")?.split_once(' ')?.1.parse().ok());
        Self {
            rpcs: None,
            page_allocations: of_zones
                .fold(None, |sum: Option<u64>, zone: u64| Some(sum.unwrap_or(0).saturating_add(zone))),
            context_switches: context_switches(stat),
            softirqs: first(stat, "softirq "),
        }
    }

    /// Returns what happened since `before`.
    pub(crate) fn since(&self, before: &Self) -> PhaseActivity {
        let more = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        let rpcs = self.rpcs.as_ref().zip(before.rpcs.as_ref()).map(|(now, then)| {
            let of = |(name, &calls): (&String, &u64)| {
                let made = calls.saturating_sub(then.get(name).copied().unwrap_or(0));
                (made > 0).then(|| (name.clone(), made))
            };
            now.iter().filter_map(of).collect()
        });
        PhaseActivity {
            rpcs,
            page_allocations: more(self.page_allocations, before.page_allocations),
            context_switches: more(self.context_switches, before.context_switches),
            softirqs: more(self.softirqs, before.softirqs),
        }
    }
}

/// Returns how many context switches happened on all CPUs since boot, from `/proc/stat`.
pub(crate) fn context_switches(stat: &str) -> Option<u64> {
    first(stat, "ctxt ")
}

/// Returns the first number after `name`, in the line of `/proc/stat` that begins with `name`.
fn first(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activity_is_the_difference_and_a_missing_counter_stays_missing() {
        let at = |switches: u64, normal: u64| {
            let stat = format!("cpu  1 2 3\nintr 99 1 2\nctxt {switches}\nbtime 5\nsoftirq 70 1 2 3\n");
            Activity::of(&stat, &format!("nr_free_pages 5\npgalloc_dma32 10\npgalloc_normal {normal}\npgfree 9\n"))
        };
        let rpcs = |of: &[(&str, u64)]| Some(of.iter().map(|&(name, calls)| (name.to_owned(), calls)).collect());
        let before = Activity { rpcs: rpcs(&[("WRITE", 3), ("READ", 7)]), ..at(100, 1000) };
        let after = Activity { rpcs: rpcs(&[("WRITE", 67), ("READ", 7), ("COMMIT", 1)]), ..at(150, 1200) };
        let expected = PhaseActivity {
            rpcs: rpcs(&[("WRITE", 64), ("COMMIT", 1)]),
            page_allocations: Some(200),
            context_switches: Some(50),
            softirqs: Some(0),
        };
        assert_eq!(after.since(&before), expected);
        assert_eq!(Activity::of("", "").since(&before), PhaseActivity::default());
    }

    #[test]
    fn this_kernel_counts() {
        let (before, after) = (Activity::read(), Activity::read());
        assert!(after.since(&before).context_switches.is_some());
    }
}

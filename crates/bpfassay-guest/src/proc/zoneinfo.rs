// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lists of free pages of each CPU, as `/proc/zoneinfo` shows them (`zoneinfo_show_print`,
//! mm/vmstat.c).

pub(crate) const PATH: &str = "/proc/zoneinfo";

/// Pages in the lists of all zones and CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PageLists {
    /// How many pages the lists hold.
    pub(crate) count: u64,
    /// How many pages the lists can hold.
    pub(crate) high: u64,
}

/// Sums the lists in `text`. `None` if `text` shows no lists, or a value is not a number.
pub(crate) fn page_lists(text: &str) -> Option<PageLists> {
    // `high:` is a line of the lists, `high` is one of the zone's watermarks.
    let sum = |name: &str| {
        let values = text.lines().filter_map(|line| line.trim_start().strip_prefix(name));
        values.map(|value| value.trim().parse::<u64>().ok()).reduce(|sum, value| sum?.checked_add(value?)).flatten()
    };
    Some(PageLists { count: sum("count:")?, high: sum("high:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_ONE_CPU: &str = "\
Node 0, zone      DMA
  pages free     3776
        high     48
  pagesets
    cpu: 0
              count:    0
              high:     0
              batch:    1
              high_min: 0
              high_max: 0
  vm stats threshold: 2
Node 0, zone    DMA32
  pages free     447927
        high     16818
  pagesets
    cpu: 0
              count:    2924
              high:     62683
              batch:    63
              high_min: 62683
              high_max: 62683
Node 0, zone   Normal
  pages free     0
        high     0
";

    #[test]
    fn lists_of_all_zones_are_added_up() {
        assert_eq!(page_lists(OF_ONE_CPU), Some(PageLists { count: 2_924, high: 62_683 }));
        let two = format!("{OF_ONE_CPU}    cpu: 1\n              count: 76\n              high:     17\n");
        assert_eq!(page_lists(&two), Some(PageLists { count: 3_000, high: 62_700 }));
    }

    #[test]
    fn what_is_not_shown_is_not_zero() {
        for text in ["", "count: 7\n", "count: 7\nhigh: many\n", "count: 18446744073709551615\ncount: 1\nhigh: 1\n"] {
            assert_eq!(page_lists(text), None, "{text}");
        }
    }
}

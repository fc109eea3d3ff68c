// SPDX-License-Identifier: MIT OR Apache-2.0
//! A set-associative cache with LRU replacement.

/// Largest number of lines of a cache: 64 MiB at the usual 64 bytes per line.
const MOST: u32 = 1 << 20;
/// Largest number of lines of a set.
const MOST_WAYS: u32 = 64;
/// An empty slot. No line has this number, because lines are addresses without their last bits.
const NONE: u64 = u64::MAX;

/// A cache that treats reads and writes alike: a written line is fetched (write-allocate), and
/// writing lines back costs nothing.
#[derive(Debug)]
pub(crate) struct CacheModel {
    /// The lines of each set, the most recently used one first.
    lines: Vec<u64>,
    ways: usize,
    /// The bits of a line that select its set.
    mask: u64,
}

impl CacheModel {
    /// A cache of `lines` lines, `ways` per set; `None` unless the number of sets is 2^n.
    pub(crate) fn new(lines: u32, ways: u32) -> Option<Self> {
        let sets = lines.checked_div(ways)?;
        let is_whole = sets.is_power_of_two() && sets * ways == lines;
        (is_whole && lines <= MOST && ways <= MOST_WAYS).then(|| Self {
            lines: vec![NONE; lines as usize],
            ways: ways as usize,
            mask: u64::from(sets) - 1,
        })
    }

    /// Removes all lines.
    pub(crate) fn forget(&mut self) {
        self.lines.fill(NONE);
    }

    /// Uses `line`. Returns whether it was missing; it is cached afterwards.
    pub(crate) fn misses(&mut self, line: u64) -> bool {
        // The mask is below the number of sets, so the range is within the lines.
        let begin = (line & self.mask) as usize * self.ways;
        let set = &mut self.lines[begin..begin + self.ways];
        if set[0] == line {
            return false;
        }
        let found = set.iter().position(|known| *known == line);
        set[..=found.unwrap_or(self.ways - 1)].rotate_right(1);
        set[0] = line;
        found.is_none()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A naive reference model: each line with the time of its last use.
    struct Naive {
        uses: Vec<(u64, usize)>,
        sets: u64,
        ways: usize,
    }

    impl Naive {
        fn misses(&mut self, line: u64, now: usize) -> bool {
            if let Some(known) = self.uses.iter_mut().find(|(known, _)| *known == line) {
                known.1 = now;
                return false;
            }
            let of_set = |other: u64| other % self.sets == line % self.sets;
            let set: Vec<_> = self.uses.iter().copied().filter(|(other, _)| of_set(*other)).collect();
            if set.len() == self.ways {
                let oldest = set.into_iter().min_by_key(|(_, used)| *used).unwrap();
                self.uses.retain(|known| *known != oldest);
            }
            self.uses.push((line, now));
            true
        }
    }

    #[test]
    fn the_line_that_was_used_the_longest_time_ago_goes() {
        let mut cache = CacheModel::new(4, 2).unwrap();
        let misses = [0, 2, 0, 4, 0, 2, 1, 3, 1].map(|line| cache.misses(line));
        assert_eq!(misses, [true, true, false, true, false, true, true, true, false]);
        cache.forget();
        assert!(cache.misses(0));
    }

    #[test]
    fn more_lines_than_a_set_has_in_turn_always_miss_and_as_many_never() {
        for (lines, all) in [(8_u64, 8), (9, 90)] {
            let mut cache = CacheModel::new(8, 8).unwrap();
            let misses = (0..10).flat_map(|_| 0..lines).filter(|line| cache.misses(*line)).count();
            assert_eq!(misses, all);
        }
    }

    #[test]
    fn sets_are_a_power_of_two() {
        assert!(
            CacheModel::new(512, 8).is_some() && CacheModel::new(768, 12).is_some() && CacheModel::new(1, 1).is_some()
        );
        for (lines, ways) in [(0, 1), (1, 0), (8, 16), (12, 4), (9, 4), (1 << 21, 2), (128, 128)] {
            assert!(CacheModel::new(lines, ways).is_none(), "{lines} {ways}");
        }
    }

    proptest! {
        #[test]
        fn it_is_a_cache_that_keeps_what_was_used_last(sets in 0_u32..4, ways in 1_u32..6, lines in prop::collection::vec(0_u64..64, 0..400)) {
            let mut cache = CacheModel::new(ways << sets, ways).unwrap();
            let mut naive = Naive { uses: Vec::new(), sets: 1 << sets, ways: ways as usize };
            for (now, line) in lines.into_iter().enumerate() {
                prop_assert_eq!(cache.misses(line), naive.misses(line, now), "{}", line);
            }
        }
    }
}

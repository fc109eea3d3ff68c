// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pseudo-random generators behind IOR's orders and patterns. The same seed gives the same
//! accesses as in IOR.
//!
//! IOR uses the C library's generators, and these are glibc's: `rand` is the additive feedback
//! generator of `random(3)` with the default state of 31 words, and `rand_r` is a linear
//! congruential generator.

/// glibc's `rand` and `random`, seeded by `srand` or `srandom`.
#[derive(Debug, Clone)]
pub(crate) struct Rand {
    state: [u32; 31],
    at: usize,
}

impl Rand {
    pub(crate) fn new(seed: u32) -> Self {
        let mut state = [0u32; 31];
        // The minimal standard generator over signed words. A seed of 0 counts as 1.
        let mut word = if seed == 0 { 1 } else { seed as i32 };
        for slot in &mut state {
            *slot = word as u32;
            let next = (16_807 * i64::from(word)) % 2_147_483_647;
            word = if next < 0 { next + 2_147_483_647 } else { next } as i32;
        }
        let mut generator = Self { state, at: 3 };
        for _ in 0..310 {
            generator.next();
        }
        generator
    }

    /// Returns the next number, from 0 to 2^31 − 1.
    pub(crate) fn next(&mut self) -> u32 {
        // Word n is the sum of words n − 31 (still in its slot) and n − 3.
        let sum = self.state[self.at].wrapping_add(self.state[(self.at + 28) % 31]);
        self.state[self.at] = sum;
        self.at = (self.at + 1) % 31;
        sum >> 1
    }

    /// Returns the next number modulo `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.next()) % bound
    }
}

/// glibc's `rand_r`.
pub(crate) fn rand_r(seed: &mut u32) -> u32 {
    let mut step = |modulus: u32| {
        *seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        (*seed / 65_536) % modulus
    };
    let high = step(2048);
    let middle = step(1024);
    let low = step(1024);
    (((high << 10) ^ middle) << 10) ^ low
}

/// IOR's own 64-bit generator, which orders `-z -z`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rand64 {
    high: u64,
    low: u64,
}

impl Rand64 {
    const MULTIPLIER: Self = Self { high: 0x0fc9_4e3b_f4e9_ab32, low: 0x8664_58cd_56f5_e605 };

    pub(crate) const fn new(seed: u64) -> Self {
        Self { high: 0, low: seed }
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.low = self.low.wrapping_mul(Self::MULTIPLIER.low);
        self.high = self.high.wrapping_mul(Self::MULTIPLIER.high).wrapping_add(self.low >> 32);
        self.high
    }
}

/// Returns the offsets, within one segment, of the transfers that task `task` makes in shuffled
/// order (`-z`).
///
/// If there is a file per process, these are all transfers of the task's block. In a shared file,
/// every transfer of the segment falls to a random task, so that tasks have different numbers of
/// transfers, possibly none.
pub(crate) fn shuffled(
    generator: &mut Rand,
    seed: u32,
    block: u64,
    transfer: u64,
    shared: Option<u64>,
    task: u64,
) -> Vec<u64> {
    let mut offsets: Vec<u64> = match shared {
        None => (0..block / transfer).map(|index| index * transfer).collect(),
        Some(tasks) => {
            // IOR draws once to count, seeds again, and draws again to collect.
            *generator = Rand::new(seed);
            (0..block * tasks / transfer)
                .map(|index| index * transfer)
                .filter(|_| generator.below(tasks) == task)
                .collect()
        }
    };
    for index in 0..offsets.len() {
        let other = generator.below(offsets.len() as u64) as usize;
        offsets.swap(index, other);
    }
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rand_is_the_c_librarys() {
        for seed in [0u32, 1, 2, 42, 573, 2_147_483_647, 2_147_483_648, u32::MAX] {
            let mut ours = Rand::new(seed);
            // SAFETY: plain calls; no other test of this program uses the C library's generator.
            let theirs: Vec<i32> = unsafe {
                libc::srand(seed);
                (0..2000).map(|_| libc::rand()).collect()
            };
            assert_eq!((0..2000).map(|_| ours.next() as i32).collect::<Vec<_>>(), theirs, "seed {seed}");
        }
    }

    #[test]
    fn rand_r_is_the_c_librarys() {
        unsafe extern "C" {
            fn rand_r(seed: *mut libc::c_uint) -> libc::c_int;
        }
        for seed in [0u32, 1, 42, 0x8000_0000, u32::MAX] {
            let (mut ours, mut theirs) = (seed, seed);
            for _ in 0..100 {
                // SAFETY: the pointer is to a live local variable.
                let expected = unsafe { rand_r(&raw mut theirs) };
                assert_eq!(super::rand_r(&mut ours) as i32, expected, "seed {seed}");
            }
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn shuffled_offsets_of_a_shared_file_fall_to_exactly_one_task() {
        let mut all: Vec<u64> =
            (0..3).flat_map(|task| shuffled(&mut Rand::new(7), 7, 64 << 10, 4 << 10, Some(3), task)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..48).map(|index| index * (4 << 10)).collect::<Vec<u64>>());
    }

    #[test]
    fn shuffled_offsets_of_an_own_file_are_a_permutation() {
        let mut offsets = shuffled(&mut Rand::new(7), 7, 64 << 10, 4 << 10, None, 0);
        assert!(!offsets.is_sorted());
        offsets.sort_unstable();
        assert_eq!(offsets, (0..16).map(|index| index * (4 << 10)).collect::<Vec<u64>>());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of runs. The generator is implemented here, so that a plan is the same on every
//! machine and with every library version.
//!
//! The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", OOPSLA 2014; constants as in `java.util.SplittableRandom`). Its start state is the
//! study's seed XOR the first eight bytes, little-endian, of SHA-256 of the text `BLOCK/ROUND`. The
//! shuffle is Fisher-Yates from the last element down. Indices are drawn without bias, by
//! rejection.

use sha2::{Digest, Sha256};

/// The SplitMix64 generator.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number below `bound` with equal probabilities. `bound` is at least 1.
    fn below(&mut self, bound: u64) -> u64 {
        // Values at or above the largest multiple of `bound` would favour small remainders.
        let limit = u64::MAX - u64::MAX % bound;
        loop {
            let value = self.next();
            if value < limit {
                return value % bound;
            }
        }
    }
}

/// Shuffles `items` into the order for (`seed`, `block`, `round`).
pub(crate) fn shuffle<T>(items: &mut [T], seed: u64, block: &str, round: u32) {
    let hash = Sha256::digest(format!("{block}/{round}").as_bytes());
    let mixed = hash.iter().take(8).rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
    let mut generator = SplitMix64(seed ^ mixed);
    for last in (1..items.len()).rev() {
        let other = generator.below(last as u64 + 1) as usize;
        items.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The outputs for seed 1234567 are from Rosetta Code ("Pseudo-random numbers/Splitmix64").
    #[test]
    fn the_generator_is_splitmix64() {
        let mut generator = SplitMix64(1_234_567);
        let values: Vec<u64> = (0..5).map(|_| generator.next()).collect();
        assert_eq!(
            values,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    /// Chi-squared test over the 24 orders of four items. The bound is the 0.9999 quantile for 23
    /// degrees of freedom (SciPy 1.17.1, `scipy.stats.chi2.ppf(0.9999, 23)` = 57.07). Fixed seeds
    /// make the result reproducible.
    #[test]
    fn every_order_is_as_likely_as_any_other() {
        let mut counts = BTreeMap::<[u8; 4], f64>::new();
        let (rounds, orders) = (24_000, 24.0);
        for round in 0..rounds {
            let mut items = [0, 1, 2, 3];
            shuffle(&mut items, 7, "block", round);
            *counts.entry(items).or_default() += 1.0;
        }
        assert_eq!(counts.len(), 24);
        let expected = f64::from(rounds) / orders;
        let chi_squared: f64 = counts.values().map(|count| (count - expected).powi(2) / expected).sum();
        assert!(chi_squared < 57.07, "{chi_squared}");
    }

    proptest! {
        #[test]
        fn a_shuffle_keeps_every_item_and_repeats_itself(mut items: Vec<u16>, seed: u64, block: String, round: u32) {
            let mut shuffled = items.clone();
            shuffle(&mut shuffled, seed, &block, round);
            let mut again = items.clone();
            shuffle(&mut again, seed, &block, round);
            prop_assert_eq!(&shuffled, &again);
            shuffled.sort_unstable();
            items.sort_unstable();
            prop_assert_eq!(shuffled, items);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers by seed: SplitMix64. The same seed gives the same numbers on every machine.

/// A generator of numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// Returns a number below `limit`, or 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The high half of a product is uniform but for one part in 2^64 / limit.
        u64::try_from((u128::from(self.bits()) * u128::from(limit)) >> 64).unwrap_or_default()
    }

    /// Returns a number from `first` to `last`, inclusive.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first) + 1)
    }

    /// Draws whether an event occurs, with a probability of `share` percent.
    pub fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// Picks one of `all`; `None` if it is empty.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let index = self.below(all.len() as u64);
        all.get(usize::try_from(index).ok()?)
    }
}

/// Mixes `value` so that every bit depends on every bit (the finalizer of SplitMix64).
#[must_use]
pub const fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..8).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        // The value of other implementations of SplitMix64.
        assert_eq!(Random::new(1_234_567).bits(), 6_457_827_717_110_365_317);
    }

    #[test]
    fn numbers_stay_within_their_limits() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert!((0..1000).all(|_| (5..=6).contains(&random.between(5, 6))));
        assert_eq!(random.below(0), 0);
        assert_eq!(random.pick::<u8>(&[]), None);
    }
}

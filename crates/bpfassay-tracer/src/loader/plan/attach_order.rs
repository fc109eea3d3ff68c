// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which functions are hooked.
//!
//! The order in which programs, trampolines and maps are created decides where the kernel places
//! them, and so which cache lines and pages they share. If the order were fixed, the cost would
//! include an accident of the layout. Programs on one function keep their order, because copies of
//! a program depend on it.

/// Returns the sort key of a hooked function: a number that depends on `seed` and the function's
/// name. If there is no seed, functions keep the order of the object file.
pub(crate) fn key(seed: Option<u64>, function: &str) -> u64 {
    let Some(seed) = seed else { return 0 };
    // FNV-1a, 64 bits (Fowler, Noll and Vo; draft-eastlake-fnv).
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let name = function.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    // The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): close seeds give unrelated
    // orders.
    let mixed = name ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    const FUNCTIONS: [&str; 4] = ["vfs_read", "vfs_write", "vfs_readv", "vfs_writev"];

    fn order(seed: Option<u64>) -> Vec<&'static str> {
        let mut functions = FUNCTIONS.to_vec();
        functions.sort_by_key(|function| key(seed, function));
        functions
    }

    #[test]
    fn without_a_seed_nothing_moves() {
        assert_eq!(order(None), FUNCTIONS);
    }

    #[test]
    fn the_order_follows_from_the_seed() {
        assert_eq!(order(Some(7)), order(Some(7)));
        // These are the smallest numbers, which replicates have. Each of the 24 orders occurs, and
        // none far too often.
        let orders: Vec<_> = (0..2400).map(|seed| order(Some(seed))).collect();
        let mut times = BTreeMap::<_, u32>::new();
        for order in &orders {
            *times.entry(order.clone()).or_default() += 1;
        }
        assert_eq!(times.len(), 24);
        // 100 of each are expected, with a standard deviation of 9.8.
        assert!(times.values().all(|times| (50..150).contains(times)), "{times:?}");
        assert!(orders[..8].iter().collect::<BTreeSet<_>>().len() > 4);
    }
}

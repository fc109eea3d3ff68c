// SPDX-License-Identifier: MIT OR Apache-2.0
//! A map with a bounded number of entries, which evicts the oldest.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A map that evicts its oldest entries.
#[derive(Debug)]
pub(crate) struct Aged<K, V> {
    most: usize,
    next: u64,
    entries: HashMap<K, (u64, V)>,
    by_age: BTreeMap<u64, K>,
}

impl<K: Copy + Eq + Hash, V> Aged<K, V> {
    /// A map for `most` entries, or for one if `most` is 0.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), next: 0, entries: HashMap::new(), by_age: BTreeMap::new() }
    }

    /// Inserts an entry. Returns the removed entries: an older one with the same key, and the
    /// oldest one if the map was full.
    pub(crate) fn insert(&mut self, key: K, value: V) -> impl Iterator<Item = V> + use<K, V> {
        let replaced = self.remove(key);
        let oldest =
            (self.entries.len() >= self.most).then(|| self.by_age.first_key_value().map(|(_, &key)| key)).flatten();
        let oldest = oldest.and_then(|key| self.remove(key));
        self.by_age.insert(self.next, key);
        self.entries.insert(key, (self.next, value));
        self.next += 1;
        replaced.into_iter().chain(oldest)
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.entries.get_mut(&key).map(|(_, value)| value)
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let (age, value) = self.entries.remove(&key)?;
        self.by_age.remove(&age);
        Some(value)
    }

    /// Removes and returns all entries with a wanted key, the oldest first.
    pub(crate) fn take(&mut self, wanted: impl Fn(K) -> bool) -> Vec<V> {
        let keys: Vec<K> = self.by_age.values().copied().filter(|&key| wanted(key)).collect();
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_oldest_goes() {
        let mut aged = Aged::new(2);
        assert_eq!(aged.insert('a', 1).count(), 0);
        assert_eq!(aged.insert('b', 2).count(), 0);
        assert_eq!(aged.insert('a', 3).collect::<Vec<_>>(), [1]);
        assert_eq!(aged.insert('c', 4).collect::<Vec<_>>(), [2]);
        assert_eq!(aged.get_mut('b'), None);
        assert_eq!(aged.take(|_| true), [3, 4]);
        assert_eq!(aged.get_mut('a'), None);
    }

    proptest! {
        #[test]
        fn it_holds_no_more_than_it_may_and_loses_nothing(steps: Vec<(u8, bool)>) {
            let mut aged = Aged::new(5);
            let (mut put, mut gone) = (0, 0);
            for (key, insert) in steps {
                if insert { put += 1; gone += aged.insert(key, ()).count(); } else { gone += usize::from(aged.remove(key).is_some()); }
                prop_assert!(aged.entries.len() <= 5 && aged.entries.len() == aged.by_age.len());
                prop_assert_eq!(put, gone + aged.entries.len());
            }
        }
    }
}

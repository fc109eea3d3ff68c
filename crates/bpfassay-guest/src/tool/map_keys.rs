// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts the keys in a tool's maps: a map without a free entry takes no further key.

use bpfassay_protocol::tool_job::{BpfObject, KeyCount, MapKeys};

use crate::{bpf, error::Result, steps::monotonic_ns};

/// `BPF_MAP_TYPE_HASH`, `_PERCPU_HASH`, `_LRU_HASH`, `_LRU_PERCPU_HASH` and `_LPM_TRIE` of
/// include/uapi/linux/bpf.h.
const WITH_KEYS: [u32; 5] = [1, 5, 9, 10, 11];

/// The largest map whose keys are counted, in entries: larger ones would take the kernel seconds.
const MAX_ENTRIES: u32 = 1 << 20;

/// Adds to `known` how many keys each of `maps` has now. A map that the kernel does not let this
/// process read is left out, as are other types and maps that no longer exist.
pub(super) fn count(maps: &[BpfObject], known: &mut Vec<MapKeys>) -> Result<()> {
    for map in maps.iter().filter(|map| WITH_KEYS.contains(&map.kind)) {
        let Some((max_entries, keys)) = bpf::keys(map.id, MAX_ENTRIES) else { continue };
        let place = known.iter().position(|known| known.id == map.id).unwrap_or_else(|| {
            known.push(MapKeys { id: map.id, max_entries, counts: Vec::new() });
            known.len() - 1
        });
        note(&mut known[place].counts, KeyCount { monotonic_ns: monotonic_ns()?, keys });
    }
    Ok(())
}

/// Adds a count unless it is the same as the one before.
fn note(counts: &mut Vec<KeyCount>, count: KeyCount) {
    if counts.last().is_none_or(|last| last.keys != count.keys) {
        counts.push(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_the_same_is_left_out() {
        let mut counts = Vec::new();
        for (monotonic_ns, keys) in [(1, 0), (2, 3), (3, 3), (4, 0)] {
            note(&mut counts, KeyCount { monotonic_ns, keys });
        }
        let kept: Vec<_> = counts.iter().map(|count| (count.monotonic_ns, count.keys)).collect();
        assert_eq!(kept, [(1, 0), (2, 3), (4, 0)]);
    }
}

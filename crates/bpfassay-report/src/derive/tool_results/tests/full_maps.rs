// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps without a free entry.

use bpfassay_protocol::tool_job::{BpfObject, KeyCount, MapKeys};
use bpfassay_tool::finding::FullMap;

use super::*;

const HASH: u32 = 1;
const LRU_HASH: u32 = 9;

/// Returns the full maps of a tool with a map of `kind`, and what is not known, if `counts` are the
/// numbers of keys at their times. The run begins at 1000 ns, and its phase ends at 2000 ns.
fn full_maps(kind: u32, max_entries: u32, counts: &[(u64, u32)]) -> (Vec<String>, Vec<bool>, Option<String>) {
    let mut figures = figures(Vec::new());
    let map = BpfObject { id: 3, name: "start".to_owned(), kind, memory_bytes: None, code: None };
    let counts = counts.iter().map(|&(monotonic_ns, keys)| KeyCount { monotonic_ns, keys }).collect::<Vec<_>>();
    let mut seen = figures.tool.take().unwrap();
    seen.maps = vec![map];
    seen.map_keys = if counts.is_empty() { Vec::new() } else { vec![MapKeys { id: 3, max_entries, counts }] };
    let (full, lack) = map_keys::full_maps(&seen, &figures);
    let had_room = full.iter().map(|map: &FullMap| map.had_room).collect();
    (full.iter().map(ToString::to_string).collect(), had_room, lack)
}

#[test]
fn a_map_that_fills_up_is_full_from_the_reading_that_shows_it() {
    let (before, end) = (1, u64::MAX);
    let full = full_maps(HASH, 16, &[(before, 0), (end, 16)]);
    assert_eq!(full.0.len(), 1, "{full:?}");
    assert!(full.0[0].starts_with("map `start`: 16 of 16 entries in use after "), "{full:?}");
    assert_eq!((full.1, full.2), (vec![true], None));
    // A map that empties again was full nevertheless.
    assert_eq!(
        full_maps(HASH, 16, &[(before, 0), (2, 16), (end, 0)]).0,
        ["map `start`: 16 of 16 entries in use before the workload"]
    );
    assert_eq!(full_maps(HASH, 16, &[(before, 0), (end, 15)]), (vec![], vec![], None));
}

#[test]
fn a_map_that_was_full_when_the_tool_was_ready_may_be_filled_on_purpose() {
    let full = full_maps(HASH, 16, &[(1, 16)]);
    assert_eq!(full, (vec!["map `start`: 16 of 16 entries in use since it was ready".to_owned()], vec![false], None));
}

#[test]
fn a_map_whose_keys_are_not_known_and_one_that_evicts_are_no_all_clear() {
    assert_eq!(full_maps(HASH, 16, &[]).2.as_deref(), Some("the keys of its map start were not counted"));
    assert_eq!(
        full_maps(LRU_HASH, 16, &[(1, 0), (2, 16)]),
        (vec![], vec![], Some("it has no map with keys".to_owned()))
    );
}

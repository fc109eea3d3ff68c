// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the maps of a tool without a free entry, from the numbers of keys when the tool was ready,
//! before the workload and after each phase.

use bpfassay_protocol::{
    message::RunFigures,
    tool_job::{BpfObject, KeyCount, MapKeys, ToolFigures},
};
use bpfassay_tool::finding::FullMap;

/// `BPF_MAP_TYPE_HASH`, `_PERCPU_HASH` and `_LPM_TRIE` of include/uapi/linux/bpf.h: a full one
/// refuses a further key with E2BIG or ENOSPC.
const REFUSING: [u32; 3] = [1, 5, 11];

/// Returns the maps without a free entry, and a sentence about maps that are not known, if there are
/// any.
pub(super) fn full_maps(seen: &ToolFigures, figures: &RunFigures) -> (Vec<FullMap>, Option<String>) {
    let with_keys: Vec<&BpfObject> = seen.maps.iter().filter(|map| REFUSING.contains(&map.kind)).collect();
    let keys_of = |map: &BpfObject| seen.map_keys.iter().find(|keys| keys.id == map.id);
    let lack = match with_keys.iter().find(|map| keys_of(map).is_none()) {
        Some(map) => Some(format!("the keys of its map {} were not counted", map.name)),
        None => with_keys.is_empty().then(|| "it has no map with keys".to_owned()),
    };
    let full = with_keys.iter().filter_map(|map| {
        let MapKeys { max_entries, counts, .. } = keys_of(map)?;
        let is_full = |count: &KeyCount| count.keys >= *max_entries;
        let had_room = counts.iter().position(|count| !is_full(count));
        let full = counts.iter().skip(had_room.unwrap_or(0)).find(|count| is_full(count))?;
        let when = match had_room {
            Some(_) => when(figures, full.monotonic_ns),
            None => "since it was ready".to_owned(),
        };
        Some(FullMap { name: map.name.clone(), entries: *max_entries, had_room: had_room.is_some(), when })
    });
    (full.collect(), lack)
}

/// Says after which phase the keys were counted at `at_ns`.
fn when(figures: &RunFigures, at_ns: u64) -> String {
    match figures.phases.iter().rfind(|phase| phase.interval.after.monotonic_ns <= at_ns) {
        Some(phase) => format!("after phase `{}`", phase.name),
        None if figures.whole.before.monotonic_ns < at_ns => "after the workload".to_owned(),
        None => "before the workload".to_owned(),
    }
}

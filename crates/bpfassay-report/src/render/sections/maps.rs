// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of maps of tools under test: how many keys each had.

use crate::render::table::{CellNames, TextTable};
use bpfassay_results::{MapFill, Results};

/// Creates a row for each map with keys, the fullest first, of each tool that a workload ran beside.
pub(super) fn table(results: &Results) -> Option<TextTable> {
    let cell_names = CellNames::of(results);
    let mut rows = Vec::new();
    for cell in &results.cells {
        let mut maps: Vec<&MapFill> = cell.loaded().into_iter().flat_map(|loaded| &loaded.maps).collect();
        maps.sort_by_key(|map| {
            std::cmp::Reverse(u64::from(map.most_keys) * 1_000_000 / u64::from(map.max_entries.max(1)))
        });
        rows.extend(maps.into_iter().map(|map| {
            let (keys, most) = (map.most_keys, map.max_entries);
            let tool = cell.tool.clone().unwrap_or_default();
            vec![cell_names.place(cell), tool, map.name.clone(), keys.to_string(), most.to_string()]
        }));
    }
    (!rows.is_empty()).then(|| TextTable {
        rows,
        legend: vec![
            "keys: the most that were counted when the tool was ready, before the workload and after a phase, in the first measured run. The kernel \
             counts neither keys that it refused nor keys that an LRU map evicted."
                .to_owned(),
        ],
        ..TextTable::new("keys in maps of tools", ["target", "tool", "map", "keys", "room for"])
    })
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of the capabilities with which tools start.

use bpfassay_protocol::privileges::{NeededCapability, Needs};
use bpfassay_tool::needed_capabilities::needs;

use crate::render::table::{CellNames, Remarks, TextTable};
use bpfassay_results::Results;

/// Creates a row for each tool and target for which capabilities were looked for.
pub(super) fn table(results: &Results) -> Option<TextTable> {
    let cell_names = CellNames::of(results);
    let mut remarks = Remarks::default();
    let mut rows = Vec::new();
    for cell in &results.cells {
        let Some(search) = cell.capabilities() else { continue };
        let without = |one: &NeededCapability| format!("{} {}", one.capability, remarks.mark(one.without.clone()));
        let without: Vec<String> = match &search.needs {
            Needs::Capabilities(needed) => needed.iter().map(without).collect(),
            Needs::Unknown(_) => Vec::new(),
        };
        let had: Vec<&str> = search.had.iter().map(|one| one.name()).collect();
        rows.push(vec![
            cell_names.place(cell),
            cell.tool.clone().unwrap_or_default(),
            search.user.to_string(),
            had.join(", "),
            needs(search),
            without.join(", "),
            search.starts.to_string(),
        ]);
    }
    (!rows.is_empty()).then(|| TextTable {
        rows,
        remarks: remarks.0,
        legend: vec![
            "needs: the tool became ready with these capabilities in addition to those that it had, with the programs and links that it has with all \
             capabilities. It did not without any one of them: `without` says what happened, with all other capabilities if it did not start with \
             these either. Whether it counts the same was not looked at."
                .to_owned(),
        ],
        ..TextTable::new(
            "capabilities with which tools start",
            ["target", "tool", "user", "had", "needs", "without", "starts"],
        )
    })
}

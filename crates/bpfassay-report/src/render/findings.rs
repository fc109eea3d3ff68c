//! The table of pitfalls that the tracer found, by target and probe configuration.

use super::rows::{Remarks, Table};
use crate::{Results, results::CellResult};

/// The table, where there is something to show.
pub(super) fn table(results: &Results) -> Option<Table> {
    let mut remarks = Remarks::default();
    let mut rows = Vec::new();
    for cell in &results.cells {
        for (index, found) in cell.findings.iter().enumerate() {
            let finding = &found.finding;
            let once = |text: String| if index == 0 { text } else { String::new() };
            let done = cell.runs.measured.saturating_add(cell.runs.refused);
            rows.push(vec![
                once(place(results, cell)),
                once(cell.probe.to_string()),
                finding.pitfall.to_string(),
                finding.subject.clone(),
                format!("{} of {done}", found.runs.len()),
                remarks.mark(finding.detail.clone()),
            ]);
        }
    }
    if rows.is_empty() {
        return None;
    }
    Some(Table {
        title: "pitfalls that the tracer found".to_owned(),
        columns: ["target", "probe", "pitfall", "concerns", "runs", "what was seen"].map(str::to_owned).into(),
        rows,
        warnings: Vec::new(),
        remarks: remarks.0,
        legend: vec![
            "runs: in how many of the runs that attached or were refused; numbers in the remarks are of the first of them."
                .to_owned(),
        ],
    })
}

/// Where a cell belongs, with workload and file system where there are several.
pub(super) fn place(results: &Results, cell: &CellResult) -> String {
    let mut place = cell.target.to_string();
    if results.cells.iter().any(|other| other.case != cell.case) {
        place = format!("{place} {}", cell.case);
    }
    if results.cells.iter().any(|other| other.file_system != cell.file_system) {
        place = format!("{place} {}", cell.file_system);
    }
    place
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of tools that were loaded and attached, where nothing else was done: their programs as the kernel held them.

use bpfassay_protocol::tool::BpfObject;

use crate::render::{
    attach::attach,
    program_code::{COLUMNS, FIGURES, NONE, shown},
    study,
    table::{Places, Remarks, Table},
};
use bpfassay_results::{Loaded, Results};

/// A row for each program of each tool, or one for the tool where it has none.
pub(super) fn table(results: &Results) -> Option<Table> {
    let mut remarks = Remarks::default();
    let mut rows = Vec::new();
    let places = Places::of(results);
    let loading = results.cells.iter().filter(|cell| cell.tool.is_some() && study::loads_only(results, &cell.case));
    for cell in loading {
        let loaded = cell.tool_result.as_ref().and_then(|result| result.loaded.as_ref());
        let ready = loaded.map_or_else(|| NONE.to_owned(), |loaded| format!("{:.2}", seconds(loaded.ready_ns)));
        let head = [attach(cell, &mut remarks), ready];
        let programs = loaded.map(Loaded::programs_by_id).unwrap_or_default();
        let mut figures: Vec<[String; 4]> = programs.into_iter().map(program).collect();
        if figures.is_empty() {
            figures.push([NONE; 4].map(str::to_owned));
        }
        for (index, figures) in figures.into_iter().enumerate() {
            let mut row = places.row(cell, index == 0);
            row.extend(if index == 0 { head.clone() } else { [String::new(), String::new()] });
            row.extend(figures);
            rows.push(row);
        }
    }
    let mut columns = places.columns(&["attach", "ready [s]", "program"]);
    columns.extend(COLUMNS);
    columns.iter_mut().filter(|column| **column == "probe").for_each(|column| *column = "tool");
    (!rows.is_empty()).then(|| Table {
        rows,
        remarks: remarks.0,
        legend: vec![
            "ready: from its start until the tool was ready, by the guest's clock; kernels and tools wait, too, so that it is no measure of the verifier."
                .to_owned(),
            "verified: instructions that the verifier processed, each as often as it did (kernels since 5.16 report it); xlated: instructions after its \
             rewriting; JITed: bytes of machine code, 0 where the kernel interprets the program."
                .to_owned(),
        ],
        ..Table::new(study::title(results), columns)
    })
}

fn program(program: &BpfObject) -> [String; 4] {
    let name =
        if program.name.is_empty() { format!("without a name, id {}", program.id) } else { program.name.clone() };
    let [verified, xlated, jited] = FIGURES.map(|of| shown(program.code.as_ref().and_then(of)));
    [name, verified, xlated, jited]
}

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

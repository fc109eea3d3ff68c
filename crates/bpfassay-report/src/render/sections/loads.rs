// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of tools that were only loaded and attached, with their programs as the kernel held
//! them.

use bpfassay_protocol::tool_job::BpfObject;

use crate::render::{
    attach::attach,
    program_code::{COLUMNS, FIGURES, LEGEND, NONE, milliseconds, shown},
    study,
    table::{CellNames, Remarks, TextTable},
};
use bpfassay_results::{Loaded, Results};

/// Creates a row for each program of each tool, or one for a tool without programs.
pub(super) fn table(results: &Results) -> Option<TextTable> {
    let mut remarks = Remarks::default();
    let mut rows = Vec::new();
    let cell_names = CellNames::of(results);
    let loading = results.cells.iter().filter(|cell| cell.tool.is_some() && study::loads_only(results, &cell.case));
    for cell in loading {
        let loaded = cell.loaded();
        let ready = shown(loaded.map(|loaded| format!("{:.2}", seconds(loaded.ready_ns))));
        let load = shown(loaded.and_then(|loaded| loaded.load_ns).map(|load_ns| format!("{:.3}", seconds(load_ns))));
        let head = [attach(cell, &mut remarks), ready, load];
        let programs = loaded.map(Loaded::programs_by_id).unwrap_or_default();
        let mut figures: Vec<Vec<String>> = programs.into_iter().map(program).collect();
        if figures.is_empty() {
            figures.push(vec![NONE.to_owned(); COLUMNS.len() + 2]);
        }
        for (index, figures) in figures.into_iter().enumerate() {
            let mut row = cell_names.row(cell, index == 0);
            row.extend(if index == 0 { head.clone() } else { head.each_ref().map(|_| String::new()) });
            row.extend(figures);
            rows.push(row);
        }
    }
    let mut columns = cell_names.columns(&["attach", "ready [s]", "load [s]", "program"]);
    columns.extend(COLUMNS);
    columns.push("verify [ms]");
    columns.iter_mut().filter(|column| **column == "probe").for_each(|column| *column = "tool");
    let clock = results.plan.study.clock;
    (!rows.is_empty()).then(|| TextTable {
        rows,
        remarks: remarks.0,
        legend: vec![
            format!(
                "ready: from its start until the tool was ready; load: making its maps and loading its programs, where the loader reports it (that of bare \
                 objects); verify: the verifier's part of that. By the guest's clock ({clock}); kernels and tools wait, too, so that `ready` is no measure of the \
                 verifier."
            ),
            LEGEND.to_owned(),
        ],
        ..TextTable::new(study::title(results), columns)
    })
}

fn program(program: &BpfObject) -> Vec<String> {
    let name =
        if program.name.is_empty() { format!("without a name, id {}", program.id) } else { program.name.clone() };
    let figures = FIGURES.map(|of| shown(program.code.as_ref().and_then(of)));
    let time = program.code.and_then(|code| code.log).map(|log| milliseconds(log.time_us));
    [name].into_iter().chain(figures).chain([shown(time)]).collect()
}

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

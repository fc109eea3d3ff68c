// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of the workload `mounts`: what each probe configuration counted on each mount, and
//! what was moved there.

use bpfassay_results::{ByteFigure, CellResult, Figure, Results, Span};
use bpfassay_study::WorkloadSpec;

use crate::{
    derive::lookup::by_cell,
    labels::NONE,
    render::{
        attach::attach,
        study,
        table::{CellNames, Remarks, TextTable},
    },
};

/// Creates a row for each mount of each probe configuration.
pub(super) fn table(results: &Results) -> Option<TextTable> {
    let cell_names = CellNames::of(results);
    let runs = by_cell(&results.runs);
    let mut remarks = Remarks::default();
    let mut rows = Vec::new();
    let has_mounts = |cell: &&CellResult| {
        let workload = results.plan.study.workload(&cell.case);
        workload.is_some_and(WorkloadSpec::has_mounts_as_phases) && !cell.probe.is_baseline()
    };
    for cell in results.cells.iter().filter(has_mounts) {
        let of_cell = runs.get(cell.cell.as_str()).into_iter().flatten();
        let figures = of_cell.filter_map(|run| run.derived.as_ref()).flat_map(|derived| &derived.bytes);
        // Identical runs are shown once.
        let mut shown: Vec<[String; 4]> = Vec::new();
        for figure in figures {
            let Span::Phase { phase, .. } = &figure.span else { continue };
            let row = [
                phase.clone(),
                figure.operation.name().to_owned(),
                number(&figure.workload, &mut remarks),
                counted(figure, &mut remarks),
            ];
            if !shown.contains(&row) {
                shown.push(row);
            }
        }
        if shown.is_empty() {
            shown.push([NONE; 4].map(str::to_owned));
        }
        for (index, figures) in shown.into_iter().enumerate() {
            let mut row = cell_names.row(cell, index == 0);
            row.push(if index == 0 { attach(cell, &mut remarks) } else { String::new() });
            row.extend(figures);
            rows.push(row);
        }
    }
    let columns = cell_names.columns(&["attach", "mount", "operation", "moved [B]", "traced"]);
    (!rows.is_empty()).then(|| TextTable {
        rows,
        remarks: remarks.0,
        legend: vec![
            "moved: what the workload's calls returned on this mount, in a phase of its own; traced: what was counted there meanwhile, exact in bytes and \
             calls or with the difference. Mounts of one file system are distinguished by their mount ids."
                .to_owned(),
        ],
        ..TextTable::new(format!("mounts: {}", study::title(results)), columns)
    })
}

fn number(figure: &Figure<u64>, remarks: &mut Remarks) -> String {
    match figure {
        Figure::Value(value) => value.to_string(),
        Figure::NotMeasured(reason) => remarks.missing(reason),
    }
}

/// Formats `exact`, or by how much the counts differ.
fn counted(figure: &ByteFigure, remarks: &mut Remarks) -> String {
    match (&figure.error, &figure.call_error) {
        (Figure::Value(0), Figure::Value(0)) => "exact".to_owned(),
        (Figure::Value(bytes), Figure::Value(calls)) => format!("{bytes:+} bytes, {calls:+} calls"),
        (Figure::NotMeasured(reason), _) | (_, Figure::NotMeasured(reason)) => remarks.missing(reason),
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of run times of programs, if the kernel kept statistics.

use bpfassay_study::Clock;

use crate::{
    labels::{self, NONE},
    render::table::{CellNames, Remarks, TextTable},
};
use bpfassay_results::{Figure, Results};

/// Creates the table, if the kernel kept statistics: a row for each program that ran, and one for
/// all of them.
pub(super) fn table(results: &Results) -> Option<TextTable> {
    let cell_names = CellNames::of(results);
    let mut remarks = Remarks::default();
    let mut rows = Vec::new();
    for cell in &results.cells {
        let mut figures: Vec<[String; 5]> = Vec::new();
        for time in cell.run_times.iter().filter(|time| time.runs > 0) {
            let per_run = time.per_run_ns.value().map_or_else(|| NONE.to_owned(), |&value| labels::number(value));
            figures.push([time.program.clone(), time.runs.to_string(), per_run, "-".to_owned(), "-".to_owned()]);
        }
        if let Some(all) = &cell.event_time {
            let runs = cell.run_times.iter().fold(0u64, |sum, time| sum.saturating_add(time.runs));
            let per_event = match &all.per_event_ns {
                Figure::Value(value) => labels::number(*value),
                Figure::NotMeasured(reason) => remarks.missing(reason),
            };
            let [all_programs, none] = ["all".to_owned(), "-".to_owned()];
            figures.push([all_programs, runs.to_string(), none, all.events.to_string(), per_event]);
        }
        for (index, figures) in figures.into_iter().enumerate() {
            let mut row = cell_names.row(cell, index == 0);
            row.extend(figures);
            rows.push(row);
        }
    }
    let columns = cell_names.columns(&["program", "runs", "ns per run", "calls counted", "ns per call"]);
    let title = format!("run time of programs by the kernel's own statistics, clock {}", results.plan.study.clock);
    (!rows.is_empty()).then(|| TextTable {
        rows,
        remarks: remarks.0,
        legend: vec![
            whose_time(results),
            "from runs of their own, which are compared with no others: the statistics cost two readings of the clock per event, \
             partly within the time. Of the programs alone, without the hooks that lead to them, and of all calls in the guest; \
             programs that never ran are left out."
                .to_owned(),
            "ns per call: of all programs together, those for other system calls included, / calls counted.".to_owned(),
        ],
        ..TextTable::new(title, columns)
    })
}

/// Explains what a nanosecond of the guest's clock means.
fn whose_time(results: &Results) -> String {
    if results.plan.study.clock == Clock::Instructions {
        return "ns: of the instruction clock, 1 ns each: instructions of the guest, not time of any processor."
            .to_owned();
    }
    let emulated =
        results.cells.iter().any(|cell| results.provenance.iter().any(|of| of.is_emulated(cell.target.arch)));
    if !emulated {
        "ns: of the guest's clock, under KVM.".to_owned()
    } else {
        "ns: of the guest's clock, under TCG: time of the emulator, not of the processor that it stands for.".to_owned()
    }
}

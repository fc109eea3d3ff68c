// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of tools for which the kernel produced different code.

use bpfassay_protocol::tool_job::ProgramCode;
use bpfassay_study::Clock;

use crate::{
    compare::{Comparison, ProgramChange},
    render::{
        program_code::{COLUMNS, FIGURES, LEGEND, milliseconds, shown},
        table::{CellNames, TextTable},
    },
};

/// Creates a table with a row for each program that differs; `None` if no program differs.
pub(super) fn table(comparison: &Comparison) -> Option<TextTable> {
    let cell_names = CellNames::of_comparison(comparison);
    let is_timed = comparison.clock == Clock::Instructions;
    let mut rows = Vec::new();
    for cell in &comparison.cells {
        for change in &cell.programs {
            let place = cell_names.text(cell.target(), &cell.case, &cell.file_system);
            let mut row = vec![place, cell.under_test.clone(), change.program.clone()];
            row.extend(FIGURES.map(|of| difference(change, of)));
            row.extend(is_timed.then(|| time(change)));
            rows.push(row);
        }
    }
    let columns = ["target", "tool", "program"].into_iter().chain(COLUMNS).chain(is_timed.then_some("verify [ms]"));
    (!rows.is_empty()).then(|| TextTable {
        rows,
        legend: vec![
            "base → new; programs that are the same are left out. verify: what the verifier took, which is not compared under the wall clock.".to_owned(),
            LEGEND.to_owned(),
        ],
        ..TextTable::new("programs of which the kernel made something else", columns)
    })
}

/// Formats the verifier's time in both results, `0.058 → 0.061`, or one time if both are equal.
fn time(change: &ProgramChange) -> String {
    let [base, new] =
        change.code.map(|code| shown(code.and_then(|code| code.log).map(|log| milliseconds(log.time_us))));
    if base == new { new } else { format!("{base} → {new}") }
}

/// Formats a figure in both results, `5 → 7 (+2)`, or `5` if both are equal.
fn difference(change: &ProgramChange, of: fn(&ProgramCode) -> Option<u32>) -> String {
    let [base, new] = change.code.map(|code| code.as_ref().and_then(of));
    match (base, new) {
        _ if base == new => shown(new),
        (Some(was), Some(is)) => format!("{was} → {is} ({:+})", i64::from(is) - i64::from(was)),
        _ => format!("{} → {}", shown(base), shown(new)),
    }
}

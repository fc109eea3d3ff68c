// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indexes of runs by cell, and of cells by the place where they are measured.

use std::collections::HashMap;

use bpfassay_study::{Block, Cell, Plan, Target, plan::file_system_id};

use bpfassay_results::RunResult;

/// The runs of each cell, in the order of the journal.
pub(crate) type ByCell<'a> = HashMap<&'a str, Vec<&'a RunResult>>;

/// A place within which runs are compared: target, workload case, file system.
pub(super) type RunPlace<'a> = (&'a Target, &'a str, String);

pub(crate) fn by_cell(runs: &[RunResult]) -> ByCell<'_> {
    let mut of_cell = ByCell::new();
    for run in runs {
        of_cell.entry(run.record.cell.as_str()).or_default().push(run);
    }
    of_cell
}

/// Returns the position of each run in the order of `plan`, by the run's id.
pub(super) fn positions(plan: &Plan) -> HashMap<&str, u64> {
    plan.runs().zip(0..).map(|((_, run), position)| (run.spec.id.as_str(), position)).collect()
}

pub(super) fn place(cell: &Cell) -> RunPlace<'_> {
    (&cell.target, &cell.case, file_system_id(&cell.file_system))
}

pub(super) fn place_of(block: &Block) -> RunPlace<'_> {
    (&block.target, &block.case, file_system_id(&block.file_system))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Direct costs as collapsed stacks, for viewers of flame graphs.

use super::{finished, format::ReportFormat, plain};
use bpfassay_results::{Figure, Results};

pub(super) const FORMAT: ReportFormat = ReportFormat {
    name: "collapsed",
    about: "Direct costs as collapsed stacks, for viewers of flame graphs",
    file: None,
    render: |results, _| Ok(collapsed(results).into()),
};

/// Number of calls that a count covers, because viewers read whole numbers only.
pub(super) const CALLS: f64 = 1000.0;

/// Renders the direct costs of `results`, one line per function: `TARGET;CASE;FILE
/// SYSTEM;PROBE;METRIC;ROLE;FUNCTION COUNT`. The count is the number of instructions in 1000 calls
/// of the workload. Figures that were not counted are left out.
#[must_use]
pub fn collapsed(results: &Results) -> String {
    let mut text = String::new();
    for cell in &results.cells {
        for metric in &cell.metrics {
            let Some(Figure::Value(direct)) = &metric.direct else { continue };
            for function in &direct.functions {
                let frames = [
                    cell.target.to_string(),
                    cell.case.clone(),
                    cell.file_system.clone(),
                    cell.under_test(),
                    metric.name.to_string(),
                    function.role.to_string(),
                    function.function.clone(),
                ];
                // A semicolon would begin another frame.
                let frames = frames.map(|frame| plain::line(&frame).replace(';', ":"));
                text.push_str(&format!("{} {:.0}\n", frames.join(";"), function.per_call * CALLS));
            }
        }
    }
    finished(text)
}

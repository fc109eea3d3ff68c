// SPDX-License-Identifier: MIT OR Apache-2.0
//! The verdicts on a study's gates: verdicts that are not a pass one by one, and the number of the
//! others.

use std::collections::HashMap;

use bpfassay_stats::Verdict;

use crate::{
    labels::verdict as name,
    render::table::{CellNames, TextTable},
};
use bpfassay_results::{CellResult, GateResult, Results};

/// Creates the table, if the study has gates. A shard decides no gates, as its warnings say.
pub(super) fn table(results: &Results) -> Option<TextTable> {
    if results.plan.study.gates.is_empty() || results.plan.shard.is_some() {
        return None;
    }
    let of = |verdict: Verdict| results.gates.iter().filter(move |gate| gate.verdict == verdict);
    let counts = [Verdict::Regression, Verdict::Inconclusive, Verdict::Pass]
        .map(|verdict| format!("{} {}", of(verdict).count(), name(verdict)));
    let cell_names = CellNames::of(results);
    let cells: HashMap<&str, &CellResult> = results.cells.iter().map(|cell| (cell.cell.as_str(), cell)).collect();
    let rows =
        of(Verdict::Regression).chain(of(Verdict::Inconclusive)).map(|gate| row(&cell_names, &cells, gate)).collect();
    let certainty = results.plan.study.design.certainty;
    let title = format!("verdicts on the gates of {}: {}", results.plan.title(), counts.join(", "));
    Some(TextTable {
        rows,
        warnings: match results.gates.is_empty() {
            true => vec!["no cell of the plan is covered by a gate".to_owned()],
            false => Vec::new(),
        },
        legend: vec![format!(
            "error rate {} for either error, kept over all gates; inconclusive is no pass.",
            certainty.error_rate
        )],
        ..TextTable::new(title, ["verdict", "target", "probe", "metric", "required", "found"])
    })
}

fn row(cell_names: &CellNames, cells: &HashMap<&str, &CellResult>, gate: &GateResult) -> Vec<String> {
    let cell = cells.get(gate.cell.as_str());
    vec![
        name(gate.verdict).to_owned(),
        cell.map_or_else(|| gate.cell.clone(), |cell| cell_names.place(cell)),
        cell.map_or_else(String::new, |cell| cell.under_test()),
        gate.metric.map_or_else(String::new, |metric| metric.to_string()),
        gate.demand.to_string(),
        gate.found.clone(),
    ]
}

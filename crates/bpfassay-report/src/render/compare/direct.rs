// SPDX-License-Identifier: MIT OR Apache-2.0
//! Direct costs of two results, and the functions that differ.

use bpfassay_stats::gate_decision::Change;

use crate::{
    compare::{CellComparison, Comparison, DirectChange},
    derive::direct::OF_SEEDS,
    labels,
    render::table::{CellNames, Remarks, TextTable},
};
use bpfassay_results::Figure;

/// The number of functions listed for one direct cost; the JSON form has all.
const LISTED: usize = 10;

/// Creates a table of direct costs and one of functions; none if nothing was counted. `whole`
/// includes what did not change.
pub(super) fn tables(comparison: &Comparison, whole: bool) -> Vec<TextTable> {
    let cell_names = CellNames::of_comparison(comparison);
    let start = |cell: &CellComparison, metric: &str| {
        vec![cell_names.text(cell.target(), &cell.case, &cell.file_system), cell.under_test.clone(), metric.to_owned()]
    };
    let mut remarks = Remarks::default();
    let (mut counts, mut rows, mut functions) = ([0_u32; 4], Vec::new(), Vec::new());
    for cell in &comparison.cells {
        let counted = cell.metrics.iter().filter_map(|metric| Some((metric, metric.direct.as_ref()?)));
        for (metric, direct) in counted {
            let mut row = start(cell, &metric.metric);
            let direct = match direct {
                Figure::Value(direct) => direct,
                Figure::NotMeasured(reason) => {
                    row.insert(0, labels::NONE.to_owned());
                    row.extend([remarks.mark(reason.to_string()), String::new(), String::new()]);
                    rows.push(row);
                    continue;
                }
            };
            counts[place(direct.change)] += 1;
            if !whole && direct.change == Change::Equivalent {
                continue;
            }
            row.insert(0, change(direct.change).to_owned());
            let [base, new] = direct.per_call;
            row.extend([
                format!("{base:.1} → {new:.1}"),
                format!("{:+.1}", direct.difference()),
                format!("{:.1}", direct.spread),
            ]);
            rows.push(row);
            functions.extend(by_function(direct).map(|row| [start(cell, &metric.metric), row].concat()));
        }
    }
    if rows.is_empty() && counts == [0; 4] {
        return Vec::new();
    }
    let [higher, lower, alike, inconclusive] = counts;
    let title = format!(
        "direct cost in instructions per call, new against base: {higher} higher, {lower} lower, {alike} alike, {inconclusive} inconclusive"
    );
    let columns = ["change", "target", "probe", "metric", "direct", "difference", "spread"];
    let legend = vec![
        format!(
            "direct: mean of the runs in the base → in the new results. spread: what the runs of one result differ by; with different seeds at least {} % of it.",
            OF_SEEDS * 100.0
        ),
        "HIGHER, lower: the difference exceeds the spread by more than half an instruction per call; inconclusive: it does not, and the runs of one \
         result differ by more than 0.5 %."
            .to_owned(),
    ];
    let mut tables = vec![TextTable { rows, remarks: remarks.0, legend, ..TextTable::new(title, columns) }];
    if !functions.is_empty() {
        let columns = ["target", "probe", "metric", "function", "role", "base", "new", "difference"];
        let title = "functions whose direct cost differs, in instructions per call";
        tables.push(TextTable { rows: functions, ..TextTable::new(title, columns) });
    }
    tables
}

fn by_function(direct: &DirectChange) -> impl Iterator<Item = Vec<String>> {
    let (listed, others) = direct.functions.split_at(direct.functions.len().min(LISTED));
    let row = |function: &str, role: String, [base, new]: [f64; 2]| {
        vec![function.to_owned(), role, format!("{base:.1}"), format!("{new:.1}"), format!("{:+.1}", new - base)]
    };
    let sum = |side: usize| others.iter().map(|function| function.per_call[side]).sum::<f64>();
    let rest = (!others.is_empty()).then(|| {
        let name = format!("{} more functions", others.len());
        row(&name, String::new(), [sum(0), sum(1)])
    });
    listed.iter().map(move |function| row(&function.function, function.role.to_string(), function.per_call)).chain(rest)
}

const fn place(change: Change) -> usize {
    match change {
        Change::Increase => 0,
        Change::Decrease => 1,
        Change::Equivalent => 2,
        Change::Inconclusive => 3,
    }
}

/// Returns the name of the claim about a direct cost.
pub(in crate::render) const fn change(change: Change) -> &'static str {
    match change {
        Change::Increase => "HIGHER",
        Change::Decrease => "lower",
        Change::Equivalent => "alike",
        Change::Inconclusive => "inconclusive",
    }
}

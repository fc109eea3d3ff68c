// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of nodes: what each moved and what its tracer counted, whose sums the table of cells has.

use std::collections::BTreeMap;

use bpfassay_results::{ByteFigure, CellResult, Figure, NodeDerived, Results, Span};
use bpfassay_stats::summarise;

use crate::{
    derive::lookup::by_cell,
    labels::{self, NONE},
    render::{
        study,
        table::{CellNames, Remarks, Table},
    },
};

/// A row for each metric of each node of each cell, over its runs; none where there is one node.
pub(super) fn table(results: &Results) -> Option<Table> {
    let cell_names = CellNames::of(results);
    let runs = by_cell(&results.runs);
    let mut remarks = Remarks::default();
    let mut rows = Vec::new();
    for cell in &results.cells {
        let mut nodes = BTreeMap::<u32, Vec<&NodeDerived>>::new();
        let of_cell = runs.get(cell.cell.as_str()).into_iter().flatten().filter(|run| !run.record.warm_up);
        for node in of_cell.filter_map(|run| run.derived.as_ref()).flat_map(|derived| &derived.nodes) {
            nodes.entry(node.node).or_default().push(node);
        }
        let mut is_first = true;
        for (number, runs) in &nodes {
            for (index, name) in metrics(cell).enumerate() {
                let mut row = cell_names.row(cell, is_first);
                is_first = false;
                row.push(if index == 0 { number.to_string() } else { String::new() });
                row.extend(figures(runs, name, cell.is_baseline(), &mut remarks));
                rows.push(row);
            }
        }
    }
    let columns = cell_names.columns(&["node", "metric", "MiB/s", "moved [B]", "byte error", "lost"]);
    (!rows.is_empty()).then(|| Table {
        rows,
        remarks: remarks.0,
        legend: vec![
            "the ranks of each node by its own clock, over its runs: the mean of bandwidths; moved, of a run: what the node's calls returned in the phase; byte error: \
             bytes that its own tracer counted - bytes moved, smallest..largest. Bytes, calls and losses of the table above are the sums; its bandwidth is the bytes of all \
             by the longest of the nodes' intervals."
                .to_owned(),
        ],
        ..Table::new(format!("nodes: {}", study::title(results)), columns)
    })
}

/// The bandwidths of `cell`.
fn metrics(cell: &CellResult) -> impl Iterator<Item = &str> {
    cell.whole().map(|(metric, _)| metric).filter(|metric| metric.operation.is_some()).map(|metric| &*metric.name)
}

fn figures(runs: &[&NodeDerived], name: &str, is_baseline: bool, remarks: &mut Remarks) -> [String; 5] {
    let bandwidths = runs.iter().flat_map(|node| &node.metrics).filter(|metric| *metric.name == *name);
    let values: Vec<f64> = bandwidths.filter_map(|metric| metric.value.value().copied()).collect();
    let bandwidth = summarise(&values).map_or_else(|_| NONE.to_owned(), |summary| labels::number(summary.center()));
    let bytes: Vec<&ByteFigure> =
        runs.iter().flat_map(|node| &node.bytes).filter(|figure| is_of(figure, name)).collect();
    let mut shown = |figure: Result<String, String>| match figure {
        Ok(text) => text,
        Err(reason) => format!("{NONE} {}", remarks.mark(reason)),
    };
    let moved = shown(range(bytes.iter().map(|figure| figure.workload.clone().map(i128::from))));
    let error = match is_baseline {
        true => "-".to_owned(),
        false => shown(range(bytes.iter().map(|figure| figure.error.clone().map(i128::from)))),
    };
    let lost: Vec<String> = runs.iter().filter_map(|node| labels::losses(node.losses.value()?)).collect();
    let lost = match (is_baseline, lost.first()) {
        (true, _) => "-".to_owned(),
        (false, Some(first)) => first.clone(),
        (false, None) if runs.iter().all(|node| node.losses.value().is_some()) => "none".to_owned(),
        (false, None) => NONE.to_owned(),
    };
    [name.to_owned(), bandwidth, moved, error, lost]
}

/// The data of the phases that are named `name`.
fn is_of(figure: &ByteFigure, name: &str) -> bool {
    let is_phase = matches!(&figure.span, Span::Phase { phase, .. } if phase == name);
    is_phase && figure.operation.name() == name
}

/// `smallest..largest` of `figures`, one number where all are equal, or why one is not known.
fn range(figures: impl Iterator<Item = Figure<i128>>) -> Result<String, String> {
    let mut range: Option<(i128, i128)> = None;
    for figure in figures {
        match figure {
            Figure::Value(value) => {
                let (least, most) = range.unwrap_or((value, value));
                range = Some((least.min(value), most.max(value)));
            }
            Figure::NotMeasured(reason) => return Err(reason.to_string()),
        }
    }
    match range {
        None => Err("no run of this node was measured".to_owned()),
        Some((least, most)) if least == most => Ok(least.to_string()),
        Some((least, most)) => Ok(format!("{least}..{most}")),
    }
}

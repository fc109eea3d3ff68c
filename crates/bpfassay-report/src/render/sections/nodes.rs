// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of nodes: what each probe configuration counted on each node of a cluster, and on all
//! nodes next to what IOR moved.

use bpfassay_protocol::{Operation, operation::Totals, tracer_messages::Losses};
use bpfassay_results::{CellResult, Figure, NodeBytes, NodeFigures, Results, RunDerived, RunResult};

use crate::{
    derive::lookup::by_cell,
    labels::{self, NONE},
    render::{
        study,
        table::{CellNames, Remarks, TextTable},
    },
};

/// Creates a row for each node and operation of each probe configuration, and one for all nodes;
/// `None` if one machine measured.
pub(super) fn table(results: &Results) -> Option<TextTable> {
    let cell_names = CellNames::of(results);
    let runs = by_cell(&results.runs);
    let mut remarks = Remarks::default();
    let mut rows = Vec::new();
    for cell in results.cells.iter().filter(|cell| !cell.probe.is_baseline()) {
        let of_cell = runs.get(cell.cell.as_str()).into_iter().flatten();
        let counted = of_cell.filter(|run| run.record.is_counted());
        let derived: Vec<&RunDerived> =
            counted.filter_map(|run: &&RunResult| run.derived.as_deref()).filter(|run| !run.nodes.is_empty()).collect();
        for (index, figures) in of_runs(&derived, &mut remarks).into_iter().enumerate() {
            rows.push(row(cell_names, cell, index == 0, figures));
        }
    }
    let columns =
        cell_names.columns(&["node", "ranks", "operation", "calls", "bytes", "share", "byte error", "events lost"]);
    (!rows.is_empty()).then(|| TextTable {
        rows,
        remarks: remarks.0,
        legend: vec![
            "by node: what the tracer of the node counted for the ranks of IOR there, summed over the runs that count. all: the sum over the nodes; byte error: \
             that sum - what IOR reports to have moved, in each run, and on a node what was counted there - what calls returned there, where that is known; exact: 0 in all of them."
                .to_owned(),
        ],
        ..TextTable::new(format!("nodes: {}", study::title(results)), columns)
    })
}

fn row(cell_names: CellNames, cell: &CellResult, is_first: bool, figures: [String; 8]) -> Vec<String> {
    let mut row = cell_names.row(cell, is_first);
    row.extend(figures);
    row
}

/// Creates the rows for the runs of one cell.
fn of_runs(runs: &[&RunDerived], remarks: &mut Remarks) -> Vec<[String; 8]> {
    let Some(first) = runs.first() else { return Vec::new() };
    let operations: Vec<Operation> = runs.iter().flat_map(|run| &run.bytes).map(|figure| figure.operation).fold(
        Vec::new(),
        |mut known, operation| {
            if !known.contains(&operation) {
                known.push(operation);
            }
            known
        },
    );
    let mut rows = Vec::new();
    let sums: Vec<Figure<Totals>> = operations.iter().map(|operation| traced(runs, *operation, |_| true)).collect();
    for node in &first.nodes {
        let is_it = |one: &NodeFigures| one.node == node.node;
        let lost = lost(runs, is_it, remarks);
        for (index, (operation, sum)) in operations.iter().zip(&sums).enumerate() {
            let of_node = traced(runs, *operation, is_it);
            let share = match (&of_node, sum) {
                (Figure::Value(part), Figure::Value(whole)) if whole.bytes > 0 => {
                    format!("{:.1}%", part.bytes as f64 / whole.bytes as f64 * 100.0)
                }
                _ => "-".to_owned(),
            };
            let [calls, bytes] = totals(&of_node, remarks);
            let [name, ranks] = match index {
                0 => [node.node.clone(), node.ranks.to_string()],
                _ => [String::new(), String::new()],
            };
            let lost = if index == 0 { lost.clone() } else { String::new() };
            let error = error_of_node(runs, *operation, is_it);
            rows.push([name, ranks, operation.name().to_owned(), calls, bytes, share, error, lost]);
        }
    }
    let ranks: u32 = first.nodes.iter().map(|node| node.ranks).sum();
    for (index, (operation, sum)) in operations.iter().zip(&sums).enumerate() {
        let [calls, bytes] = totals(sum, remarks);
        let [name, ranks] = match index {
            0 => ["all".to_owned(), ranks.to_string()],
            _ => [String::new(), String::new()],
        };
        let error = error(runs, *operation, remarks);
        rows.push([name, ranks, operation.name().to_owned(), calls, bytes, String::new(), error, String::new()]);
    }
    rows
}

/// Sums what was counted of `operation` on the nodes that `keep` selects, over `runs`; if something
/// is missing, returns the first reason.
fn traced(runs: &[&RunDerived], operation: Operation, keep: impl Fn(&NodeFigures) -> bool) -> Figure<Totals> {
    let nodes = runs.iter().flat_map(|run| &run.nodes).filter(|node| keep(node));
    let figures = nodes.flat_map(|node| &node.bytes).filter(|bytes| bytes.operation == operation);
    let mut sum = Totals::default();
    for NodeBytes { traced, .. } in figures {
        match traced {
            Figure::Value(totals) => sum += *totals,
            Figure::NotMeasured(_) => return traced.clone(),
        }
    }
    Figure::Value(sum)
}

fn totals(figure: &Figure<Totals>, remarks: &mut Remarks) -> [String; 2] {
    match figure {
        Figure::Value(totals) => [totals.calls.to_string(), totals.bytes.to_string()],
        Figure::NotMeasured(reason) => {
            let mark = remarks.missing(reason);
            [mark.clone(), mark]
        }
    }
}

/// Formats how far the counts on a node differ from what its calls returned, over `runs`; empty if
/// that is only known for all nodes together.
fn error_of_node(runs: &[&RunDerived], operation: Operation, is_it: impl Fn(&NodeFigures) -> bool) -> String {
    let nodes = runs.iter().flat_map(|run| &run.nodes).filter(|node| is_it(node));
    let figures = nodes.flat_map(|node| &node.bytes).filter(|bytes| bytes.operation == operation);
    let errors: Option<Vec<i128>> = figures
        .map(|bytes| Some(i128::from(bytes.traced.value()?.bytes) - i128::from(bytes.moved.value()?.bytes)))
        .collect();
    let errors = errors.unwrap_or_default();
    errors_shown(errors.iter().min().copied(), errors.iter().max().copied()).unwrap_or_default()
}

/// Formats how far the sums over the nodes differ from what IOR moved, over `runs`.
fn error(runs: &[&RunDerived], operation: Operation, remarks: &mut Remarks) -> String {
    let mut errors = Vec::new();
    for figure in runs.iter().flat_map(|run| &run.bytes).filter(|figure| figure.operation == operation) {
        match &figure.error {
            Figure::Value(error) => errors.push(*error),
            Figure::NotMeasured(reason) => return remarks.missing(reason),
        }
    }
    errors_shown(errors.iter().min().copied().map(i128::from), errors.iter().max().copied().map(i128::from))
        .unwrap_or_else(|| "-".to_owned())
}

/// Formats the smallest and the largest error; `None` without errors.
fn errors_shown(least: Option<i128>, most: Option<i128>) -> Option<String> {
    Some(match (least?, most?) {
        (0, 0) => "exact".to_owned(),
        (least, most) if least == most => format!("{least:+} bytes in each run"),
        (least, most) => format!("{least:+} to {most:+} bytes"),
    })
}

/// Formats what the tracer of a node lost, over `runs`.
fn lost(runs: &[&RunDerived], is_it: impl Fn(&NodeFigures) -> bool, remarks: &mut Remarks) -> String {
    let mut sum = Losses::default();
    for node in runs.iter().flat_map(|run| &run.nodes).filter(|node| is_it(node)) {
        match &node.losses {
            Figure::Value(losses) => {
                let add = |sum: &mut Option<u64>, more: Option<u64>| {
                    if let Some(more) = more {
                        *sum = Some(sum.unwrap_or_default().saturating_add(more));
                    }
                };
                add(&mut sum.missed_probes, losses.missed_probes);
                add(&mut sum.recursion_misses, losses.recursion_misses);
                add(&mut sum.map_insert_failures, losses.map_insert_failures);
                add(&mut sum.lru_evictions, losses.lru_evictions);
                add(&mut sum.ring_buffer_drops, losses.ring_buffer_drops);
            }
            Figure::NotMeasured(reason) => return remarks.missing(reason),
        }
    }
    // The byte error in the same row shows whether calls of the workload were skipped.
    let skipped = sum.recursion_misses.filter(|&count| count > 0).map(|count| format!("skipped {count} times"));
    let shown: Vec<String> = labels::losses(&sum).into_iter().chain(skipped).collect();
    if !shown.is_empty() {
        return shown.join(", ");
    }
    match sum {
        // Zero is a count; a tracer that reports no losses has no count.
        Losses {
            missed_probes: None,
            recursion_misses: None,
            map_insert_failures: None,
            lru_evictions: None,
            ring_buffer_drops: None,
        } => NONE.to_owned(),
        _ => "0".to_owned(),
    }
}

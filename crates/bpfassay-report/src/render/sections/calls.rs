// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of calls: what a probe adds to each call that moves data, and to the whole phase.

use std::collections::HashMap;

use crate::{
    derive::pairs::metric_of,
    labels::{self, NONE},
    render::table::{CellNames, Remarks, TextTable},
};
use bpfassay_results::{CellMetric, CellResult, Figure, NO_CALL_TIMES, Overhead, Results, RunResult};

/// Creates the table, if calls of any run were timed.
pub(super) fn table(results: &Results) -> Option<TextTable> {
    if results.cells.iter().flat_map(|cell| &cell.metrics).all(|metric| metric.calls_of.is_none()) {
        return None;
    }
    let cell_names = CellNames::of(results);
    let mut remarks = Remarks::default();
    let first = first_runs(results);
    let mut rows = Vec::new();
    let mut overheads: Vec<&Overhead> = Vec::new();
    for cell in results.cells.iter().filter(|cell| cell.runs.measured > 0) {
        for (index, phase) in cell.metrics.iter().filter(|metric| metric.operation.is_some()).enumerate() {
            let mut row = cell_names.row(cell, index == 0);
            row.push(phase.name.to_string());
            match cell.metrics.iter().find(|metric| metric.calls_of == Some(phase.name)) {
                Some(calls) => {
                    overheads.extend(calls.compared(cell.is_baseline()).value());
                    row.extend(figures(cell, calls, phase, &mut remarks));
                }
                None => {
                    let reason = why_not(first.get(cell.cell.as_str()).copied(), phase);
                    row.push(remarks.missing(&reason));
                    row.extend(["-"; 4].map(str::to_owned));
                }
            }
            rows.push(row);
        }
    }
    let columns =
        cell_names.columns(&["calls of", "ns per call", "overhead per call [95 %]", "whole phase", "n", "detectable"]);
    let title = format!("time per call, study {}, clock {}", results.plan.title(), results.plan.study.clock);
    let mut legend = vec![
        "overhead per call: time per call with the probe / without it (above 1: slower), of the calls that move the data, without the \
         fastest and the slowest sixteenth (trimmed mean): open, fsync and close are only in the overhead of the whole phase. A/A: the \
         baseline against itself, the noise floor."
            .to_owned(),
    ];
    if overheads.iter().any(|overhead| overhead.pooled.is_some()) {
        legend.push("~: as in the table of cells.".to_owned());
    }
    legend.extend(labels::why_no_intervals(overheads.into_iter()));
    Some(TextTable { rows, remarks: remarks.0, legend, ..TextTable::new(title, columns) })
}

fn figures(cell: &CellResult, calls: &CellMetric, phase: &CellMetric, remarks: &mut Remarks) -> Vec<String> {
    let mut shown = |text: Option<String>, reason: Option<&str>| {
        text.unwrap_or_else(|| remarks.missing(reason.unwrap_or_default()))
    };
    let is_baseline = cell.is_baseline();
    let (of_calls, of_phase) = (calls.compared(is_baseline), phase.compared(is_baseline));
    let detectable = of_calls.value().and_then(|overhead| overhead.detectable);
    vec![
        shown(labels::performance(&calls.value), calls.value.reason()),
        shown(labels::overhead_finely(calls, is_baseline), of_calls.reason()),
        shown(
            of_phase.value().map(|overhead| match !is_baseline && phase.is_within_noise() {
                true => labels::WITHIN_NOISE.to_owned(),
                false => format!("{:.4}", overhead.estimate.value),
            }),
            of_phase.reason(),
        ),
        of_calls.value().map_or_else(|| "-".to_owned(), |overhead| overhead.estimate.n.to_string()),
        detectable.map_or_else(|| "-".to_owned(), labels::detectable),
    ]
}

/// Tells why no calls of any run of an IOR study were timed; `None` if some were, or without
/// bandwidths.
pub(super) fn why_none(results: &Results) -> Option<String> {
    let first = first_runs(results);
    let reason = |cell: &CellResult| {
        let phase = cell.metrics.iter().find(|metric| metric.operation.is_some())?;
        Some(why_not(Some(first.get(cell.cell.as_str())?), phase))
    };
    let is_timed = results.cells.iter().flat_map(|cell| &cell.metrics).any(|metric| metric.calls_of.is_some());
    let reason = results.cells.iter().find_map(reason).filter(|_| !is_timed)?;
    Some(format!("time per call: {NONE}: {reason}."))
}

/// Returns the first run of each cell with figures.
fn first_runs(results: &Results) -> HashMap<&str, &RunResult> {
    let mut first = HashMap::new();
    for run in results.runs.iter().filter(|run| run.derived.is_some()) {
        first.entry(run.record.cell.as_str()).or_insert(run);
    }
    first
}

fn why_not(run: Option<&RunResult>, phase: &CellMetric) -> String {
    let work = run.and_then(|run| metric_of(run, &phase.name)).map(|metric| &metric.work);
    let reason = match work {
        Some(Figure::Value(work)) => work.in_calls_ns.reason(),
        Some(missing) => missing.reason(),
        None => None,
    };
    reason.unwrap_or(NO_CALL_TIMES).to_owned()
}

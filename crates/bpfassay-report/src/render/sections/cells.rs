// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of cells: whether each attached, with figures, overhead and accuracy.

use bpfassay_protocol::probe::ByteMeaning;
use bpfassay_stats::Summary;
use bpfassay_study::Interface;

use crate::{
    derive::levels::layouts,
    labels::{self, NONE},
    render::{
        attach::attach,
        study,
        table::{CellNames, Remarks, TextTable},
    },
};
use bpfassay_results::{CellAccuracy, CellMetric, CellResult, Figure, Pooled, Results, Unit};

pub(super) fn table(results: &Results) -> Option<TextTable> {
    let cell_names = CellNames::of(results);
    let sampled = results.plan.study.design.sampling_interval_ms.is_some();
    let is_mixed = is_mixed(results);
    let mut columns = cell_names.columns(&[
        "attach",
        "metric",
        if is_mixed { "value" } else { "MiB/s" },
        "overhead [95 %]",
        "n",
        "detectable",
        "byte error",
        "relative error",
    ]);
    columns.extend(sampled.then_some("relative error, sampled"));

    let mut remarks = Remarks::default();
    let mut rows = Vec::new();
    for cell in &results.cells {
        let attach = attach(cell, &mut remarks);
        for (index, (metric, accuracy)) in cell.whole().enumerate() {
            let mut row = cell_names.row(cell, index == 0);
            row.extend([if index == 0 { attach.clone() } else { String::new() }, metric.name.to_string()]);
            row.extend(figures(cell, (metric, accuracy), sampled, is_mixed, &mut remarks));
            rows.push(row);
        }
    }
    Some(TextTable {
        rows,
        warnings: study::warnings_with_doubts(results),
        legend: legend(results, sampled),
        remarks: remarks.0,
        ..TextTable::new(study::title(results), columns)
    })
}

/// Whether there are metrics other than bandwidths, so that each needs its unit.
fn is_mixed(results: &Results) -> bool {
    whole_metrics(results).any(|metric| metric.operation.is_none())
}

fn whole_metrics(results: &Results) -> impl Iterator<Item = &CellMetric> {
    results.cells.iter().flat_map(CellResult::whole).map(|(metric, _)| metric)
}

fn figures(
    cell: &CellResult,
    (metric, accuracy): (&CellMetric, Option<&CellAccuracy>),
    sampled: bool,
    is_mixed: bool,
    remarks: &mut Remarks,
) -> Vec<String> {
    // If nothing was measured, the column `attach` shows why; a remark for each figure would repeat
    // it.
    let nothing = cell.runs.measured == 0;
    let mut shown = |text: Option<String>, reason: Option<&str>| match (text, reason) {
        (Some(text), _) => text,
        (None, Some(reason)) if !nothing => remarks.missing(reason),
        (None, _) => NONE.to_owned(),
    };
    let is_baseline = cell.is_baseline();
    let compared = metric.compared(is_baseline);
    let overhead = shown(labels::overhead(metric, is_baseline), compared.reason());
    let n = compared.value().map_or_else(|| "-".to_owned(), |overhead| overhead.estimate.n.to_string());
    let detectable = compared.value().and_then(|overhead| overhead.detectable);
    let detectable = detectable.map_or_else(|| "-".to_owned(), labels::detectable);
    // Other tools do not report these figures. Program sets do not count bytes per mount, and only
    // IOR reports bandwidths.
    let not_reported = cell.counts.is_none() || metric.operation.is_none();
    let not_of_the_baseline = |text: String| if not_reported && !nothing { "-".to_owned() } else { text };
    let byte_error = byte_error(cell, metric, accuracy, &mut shown);
    let error = |pick: fn(&CellAccuracy) -> &Figure<Summary>| {
        let figure = accuracy.map(pick);
        (figure.and_then(labels::relative_error), figure.and_then(Figure::reason).filter(|_| !not_reported))
    };
    let (of_interval, why_not) = error(|accuracy| &accuracy.relative_error_ior_interval);
    let mut row = vec![
        shown(
            labels::performance(&metric.value).map(|text| match is_mixed {
                true => format!("{text} {}", metric.unit),
                false => text,
            }),
            metric.value.reason(),
        ),
        overhead,
        n,
        detectable,
        byte_error,
        not_of_the_baseline(shown(of_interval, why_not)),
    ];
    if sampled {
        let (instantaneous, why_not) = error(|accuracy| &accuracy.relative_error_instantaneous);
        row.push(not_of_the_baseline(shown(instantaneous, why_not)));
    }
    row
}

/// Formats the byte error. `shown` formats a figure, or why there is none.
fn byte_error(
    cell: &CellResult,
    metric: &CellMetric,
    accuracy: Option<&CellAccuracy>,
    shown: &mut dyn FnMut(Option<String>, Option<&str>) -> String,
) -> String {
    // Other workloads that report bytes have the byte errors in one of their rows.
    let bytes = accuracy.map(|accuracy| &accuracy.byte_error);
    let counted = bytes.and_then(labels::byte_error);
    let no_bytes = cell.counts.is_none() || (metric.operation.is_none() && counted.is_none());
    let has_bytes = counted.is_some();
    let mut text = shown(counted, bytes.and_then(Figure::reason).filter(|_| !no_bytes));
    if no_bytes && cell.runs.measured > 0 {
        text = "-".to_owned();
    }
    let calls = accuracy.and_then(|accuracy| labels::byte_error(&accuracy.call_error));
    if let Some(calls) = calls.filter(|calls| calls != "0") {
        text.push_str(&format!(", calls {calls}"));
    }
    if cell.counts == Some(ByteMeaning::Requested) && has_bytes {
        text.push_str(" requested");
    }
    text
}

fn legend(results: &Results, sampled: bool) -> Vec<String> {
    let mut legend = vec![
        "overhead: bandwidth of the baseline / bandwidth with the probe (above 1: slower), with 95 % interval; A/A: the baseline \
         against itself, the noise floor. within noise: the interval holds 1, or the overhead lies in the noise floor."
            .to_owned(),
        "detectable: the smallest overhead that so many observations with such a spread would show with probability 0.8."
            .to_owned(),
        "byte error: bytes traced - bytes moved, smallest..largest over all intervals; `calls`: the same for calls, where not 0; \
         `requested`: the probe counts what callers ask for, not what calls return."
            .to_owned(),
        "relative error: bandwidth by IOR / bandwidth traced, over IOR's own interval: by construction bytes moved / bytes traced (1: exact)."
            .to_owned(),
    ];
    legend.extend(super::calls::why_none(results));
    if sampled {
        legend.push(
            "relative error, sampled: the same with the mean of instantaneous bandwidths (as in the CEEMS study), too high by about \
             sampling interval / duration."
                .to_owned(),
        );
    }
    if is_mixed(results) {
        legend.push(
            "work: what a workload that is not IOR reports of itself; its overhead is that of this metric, above 1 worse."
                .to_owned(),
        );
    }
    if results.plan.cells.iter().any(|cell| cell.interface == Some(Interface::Mmap)) {
        legend.push(
            "MMAP: no system call moves mapped pages, so a probe on reads and writes misses them: the byte error is all that was \
             moved."
                .to_owned(),
        );
    }
    let overheads =
        || whole_metrics(results).flat_map(|metric| [&metric.overhead, &metric.control]).filter_map(Figure::value);
    let is_negligible = overheads().any(|overhead| overhead.negligible == Some(true));
    if let Some(margin) = results.plan.study.design.margin.filter(|_| is_negligible) {
        legend
            .push(format!("negligible: shown to lie within {margin} either way (two one-sided tests, over all rows)."));
    }
    let of_rounds =
        overheads().any(|overhead| overhead.unit == Unit::Rounds && overhead.estimate.bounds.interval().is_some());
    if of_rounds {
        legend.push(super::cost::OF_ROUNDS.to_owned());
    } else if overheads().any(|overhead| overhead.unit == Unit::Boots) {
        legend.push("n counts boots.".to_owned());
    }
    let pooled: Vec<Pooled> = overheads().filter_map(|overhead| overhead.pooled).collect();
    if !pooled.is_empty() {
        let added = added_to_intervals(results, &pooled);
        legend.push(format!("~: the interval has more in it than its own spread: {added}."));
    }
    legend.extend(labels::why_no_intervals(overheads()));
    legend
}

/// Names what the intervals of `pooled` have in them beside their own spread.
fn added_to_intervals(results: &Results, pooled: &[Pooled]) -> String {
    let has_layout = |metric: &CellMetric| {
        let pooled = metric.overhead.value().and_then(|overhead| overhead.pooled);
        pooled.is_some_and(|pooled| pooled.layout > 0.0)
    };
    let with_layout = whole_metrics(results).filter(|metric| has_layout(metric));
    let layouts = layouts(with_layout.map(|metric| &*metric.name));
    let shares = pooled.iter().any(|pooled| pooled.cells > 1);
    let variance = shares.then(|| "the variance of all rows of the same metric (moderated t)".to_owned());
    let layout = layouts.map(|layouts| format!("the declared layout term: {layouts}"));
    let parts: Vec<String> = variance.into_iter().chain(layout).collect();
    parts.join(", and ")
}

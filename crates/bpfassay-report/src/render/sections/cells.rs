// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of cells: whether each attached, its figures, its overhead and its accuracy.

use bpfassay_protocol::probe::ByteMeaning;
use bpfassay_stats::Bounds;
use bpfassay_study::Interface;

use crate::{
    labels::{self, NONE},
    render::{
        attach::attach,
        study,
        table::{Places, Remarks, Table},
    },
};
use bpfassay_results::{CellAccess, CellResult, Figure, Results, Unit};

pub(super) fn table(results: &Results) -> Option<Table> {
    let places = Places::of(results);
    let sampled = results.plan.study.design.sampling_interval_ms.is_some();
    let mut columns = places.columns(&[
        "attach",
        "access",
        if has_merits(results) { "figure of merit" } else { "MiB/s" },
        "overhead [95 %]",
        "n",
        "detectable",
        "byte error",
        "relative error",
    ]);
    columns.extend(sampled.then_some("relative error, sampled"));

    let has_merits = has_merits(results);
    let mut remarks = Remarks::default();
    let mut rows = Vec::new();
    for cell in &results.cells {
        let attach = attach(cell, &mut remarks);
        for (index, access) in cell.accesses.iter().enumerate() {
            let mut row = places.row(cell, index == 0);
            row.extend([if index == 0 { attach.clone() } else { String::new() }, access.access.to_string()]);
            row.extend(figures(cell, access, sampled, has_merits, &mut remarks));
            rows.push(row);
        }
    }
    Some(Table {
        rows,
        warnings: study::warnings_with_doubts(results),
        legend: legend(results, sampled),
        remarks: remarks.0,
        ..Table::new(study::title(results), columns)
    })
}

/// Whether there are figures of merit beside bandwidths: each then has its unit with it.
fn has_merits(results: &Results) -> bool {
    results.cells.iter().flat_map(|cell| &cell.accesses).any(|access| access.merit.is_some())
}

fn figures(
    cell: &CellResult,
    access: &CellAccess,
    sampled: bool,
    has_merits: bool,
    remarks: &mut Remarks,
) -> Vec<String> {
    // Where nothing was measured, the column `attach` shows why: a remark for each figure would only repeat it.
    let nothing = cell.runs.measured == 0;
    let mut shown = |text: Option<String>, reason: Option<&str>| match (text, reason) {
        (Some(text), _) => text,
        (None, Some(reason)) if !nothing => format!("{NONE} {}", remarks.mark(reason.to_owned())),
        (None, _) => NONE.to_owned(),
    };
    let is_baseline = cell.is_baseline();
    let compared = if is_baseline { &access.control } else { &access.overhead };
    let prefix = if is_baseline { "A/A " } else { "" };
    let overhead = shown(labels::overhead(compared).map(|text| format!("{prefix}{text}")), compared.reason());
    let n = compared.value().map_or_else(|| "-".to_owned(), |overhead| overhead.estimate.n.to_string());
    let detectable = compared.value().and_then(|overhead| overhead.detectable);
    let detectable = detectable.map_or_else(|| "-".to_owned(), labels::beyond_one);
    // Other tools are not asked for figures either.
    // Program sets neither, of bytes per mount; nor are workloads that are not IOR.
    let not_reported = cell.counts.is_none() || access.merit.is_some();
    let not_of_the_baseline = |text: String| if not_reported && !nothing { "-".to_owned() } else { text };
    // The bytes that any other workload reports have figures in one of its rows.
    let no_bytes = cell.counts.is_none() || (access.merit.is_some() && access.byte_error.value().is_none());
    let mut byte_error =
        shown(labels::byte_error(&access.byte_error), access.byte_error.reason().filter(|_| !no_bytes));
    if no_bytes && !nothing {
        byte_error = "-".to_owned();
    }
    if let Some(calls) = labels::byte_error(&access.call_error).filter(|calls| calls != "0") {
        byte_error.push_str(&format!(", calls {calls}"));
    }
    if cell.counts == Some(ByteMeaning::Requested) && access.byte_error.value().is_some() {
        byte_error.push_str(" requested");
    }
    let mut row = vec![
        shown(
            labels::performance(access.performance()).map(|text| match &access.merit {
                Some(merit) => format!("{text} {}", merit.unit),
                None if has_merits => format!("{text} MiB/s"),
                None => text,
            }),
            access.performance().reason(),
        ),
        overhead,
        n,
        detectable,
        byte_error,
        not_of_the_baseline(shown(
            labels::relative_error(&access.relative_error_ior_interval),
            access.relative_error_ior_interval.reason().filter(|_| !not_reported),
        )),
    ];
    if sampled {
        row.push(not_of_the_baseline(shown(
            labels::relative_error(&access.relative_error_instantaneous),
            access.relative_error_instantaneous.reason().filter(|_| !not_reported),
        )));
    }
    row
}

fn legend(results: &Results, sampled: bool) -> Vec<String> {
    let mut legend = vec![
        "overhead: bandwidth of the baseline / bandwidth with the probe (above 1: slower), with 95 % interval; A/A: the baseline \
         against itself, the noise floor."
            .to_owned(),
        "detectable: the smallest overhead that so many observations with such a spread would show with probability 0.8."
            .to_owned(),
        "byte error: bytes traced - bytes moved, smallest..largest over all intervals; `calls`: the same for calls, where not 0; \
         `requested`: the probe counts what callers ask for, not what calls return."
            .to_owned(),
        "relative error: bandwidth by IOR / bandwidth traced, over IOR's own interval (1: exact).".to_owned(),
    ];
    if sampled {
        legend.push(
            "relative error, sampled: the same with the mean of instantaneous bandwidths (as in the CEEMS study), too high by about \
             sampling interval / duration."
                .to_owned(),
        );
    }
    if has_merits(results) {
        legend.push(
            "work: what a workload that is not IOR reports of itself; its overhead is that of the figure of merit, above 1 worse."
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
    let overheads = || {
        results
            .cells
            .iter()
            .flat_map(|cell| &cell.accesses)
            .flat_map(|access| [&access.overhead, &access.control])
            .filter_map(Figure::value)
    };
    if let Some(margin) = results.plan.study.design.margin {
        legend
            .push(format!("negligible: shown to lie within {margin} either way (two one-sided tests, over all rows)."));
    }
    let of_rounds =
        overheads().any(|overhead| overhead.unit == Unit::Rounds && overhead.estimate.bounds.interval().is_some());
    if of_rounds {
        legend
            .push("n counts rounds within one boot: the interval does not cover the spread between boots.".to_owned());
    } else if overheads().any(|overhead| overhead.unit == Unit::Boots) {
        legend.push("n counts boots.".to_owned());
    }
    for reason in [Bounds::OneObservation, Bounds::NoSpread] {
        if overheads().any(|overhead| overhead.estimate.bounds == reason)
            && let Some(text) = reason.reason()
        {
            legend.push(format!("no interval: {text}."));
        }
    }
    legend
}

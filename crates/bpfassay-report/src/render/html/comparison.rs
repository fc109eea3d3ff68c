// SPDX-License-Identifier: MIT OR Apache-2.0
//! A comparison as an HTML page in the style of a report.

use askama::Template;

use super::{
    SummaryCount,
    figures::{self, Plot, Plots, axis::PlotStyle, dots::dots},
    finished,
    plot::{DotRow, Mark},
};
use crate::{
    compare::{CellComparison, Comparison},
    render::{
        compare::{self, ChangeCounts},
        table::{CellNames, TextTable},
    },
};

#[derive(Template)]
#[template(path = "comparison.html")]
struct ComparisonPage<'a> {
    comparison: &'a Comparison,
    title: String,
    counts: Vec<SummaryCount>,
    tables: Vec<TextTable>,
    plots: Vec<Plots>,
    style: &'static str,
}

/// Renders `comparison` as an HTML page without references to other files; `whole` includes what
/// did not change.
///
/// # Errors
/// [`std::fmt::Error`], which writing into memory never causes.
pub fn comparison_html(comparison: &Comparison, whole: bool) -> Result<String, std::fmt::Error> {
    let [base, new] = compare::sides(comparison);
    let ratios = Plots { id: "ratios", title: "New / base", plots: ratios(comparison) };
    finished(&ComparisonPage {
        comparison,
        title: format!("{new} against {base}"),
        counts: counts(comparison),
        tables: compare::tables(comparison, whole),
        plots: if ratios.plots.is_empty() { Vec::new() } else { vec![ratios] },
        style: super::STYLE,
    })
}

fn counts(comparison: &Comparison) -> Vec<SummaryCount> {
    let counts = ChangeCounts::of(comparison);
    [
        (counts.broken, "broken", "bad"),
        (counts.miscounts, "miscount", "bad"),
        (counts.slower, "slower", "bad"),
        (counts.pitfalls, "new pitfalls", "bad"),
        (counts.findings, "new findings", "bad"),
        (counts.inconclusive, "inconclusive", "open"),
        (counts.faster, "faster", "good"),
        (counts.alike, "alike", "good"),
        (counts.baseline_slower, "baseline slower", ""),
        (counts.baseline_faster, "baseline faster", ""),
        (counts.neither, "cells measured in neither", ""),
    ]
    .map(|(number, what, class)| SummaryCount::new(usize::try_from(number).unwrap_or(usize::MAX), what, class))
    .into()
}

/// Plots the ratios, with a row for each cell that has one.
fn ratios(comparison: &Comparison) -> Vec<Plot> {
    let names = CellNames::of_comparison(comparison);
    let of = |title: &str, metrics: &[&str]| {
        let row = |cell: &CellComparison| {
            let marks = (0..).zip(metrics).filter_map(|(series, name)| {
                let metric = cell.metrics.iter().find(|metric| &*metric.metric == *name)?;
                Some((series, Mark::of(&metric.ratio.value()?.estimate)))
            });
            let marks: Vec<_> = marks.collect();
            let place = names.text(cell.target(), &cell.case, &cell.file_system);
            let label = format!("{place} {}", cell.under_test);
            (!marks.is_empty()).then_some(DotRow { label, marks, note: String::new() })
        };
        let figure = PlotStyle {
            axis: "new / base (above 1: slower)",
            unit: "",
            reference: 1.0,
            note: "With its interval for this cell alone. Of `none`: time for the same bytes; of a tool: its overhead.",
        };
        dots(title, comparison.cells.iter().filter_map(row).collect(), metrics, figure)
    };
    [of("new / base of each cell", figures::WHOLE), of("new / base of each cell, time per call", figures::CALLS)]
        .concat()
}

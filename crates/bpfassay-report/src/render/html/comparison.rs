// SPDX-License-Identifier: MIT OR Apache-2.0
//! A comparison as an HTML page in the style of a report.

use askama::Template;

use super::{
    SummaryCount,
    figures::{
        self, Plot, Plots,
        panels::{Panel, PanelShape, PanelStyle, together},
    },
    finished,
    plot::Mark,
};
use crate::{
    compare::{CellComparison, Comparison},
    render::{
        compare::{self, ChangeCounts},
        table::TextTable,
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

/// Makes one panel per pair of targets and file system.
fn ratios(comparison: &Comparison) -> Vec<Plot> {
    let many = comparison.cells.iter().any(|cell| cell.case != comparison.cells[0].case);
    let mut panels: Vec<(String, Vec<&CellComparison>)> = Vec::new();
    for cell in &comparison.cells {
        let name = format!("{}, {}", cell.target(), cell.file_system);
        match panels.iter_mut().find(|(known, _)| *known == name) {
            Some((_, cells)) => cells.push(cell),
            None => panels.push((name, vec![cell])),
        }
    }
    let row = |metrics: &[&str], cell: &CellComparison| {
        let marks = (0..).zip(metrics).filter_map(|(series, name)| {
            let metric = cell.metrics.iter().find(|metric| &*metric.metric == *name)?;
            Some((series, Mark::of(&metric.ratio.value()?.estimate)))
        });
        let marks: Vec<_> = marks.collect();
        let name = if many { format!("{}, {}", cell.under_test, cell.case) } else { cell.under_test.clone() };
        (!marks.is_empty()).then_some((name, marks))
    };
    let panel = |(name, cells): &(String, Vec<&CellComparison>), metrics: &[&str], what: &str| {
        let rows: Vec<_> = cells.iter().filter_map(|cell| row(metrics, cell)).collect();
        Panel {
            place: name.clone(),
            title: format!("{name}: new / base{what}"),
            series: figures::series(metrics, &rows),
            shape: PanelShape::Rows(rows),
        }
    };
    let of = |name, metrics: &[&str], what: &str| {
        let figure = PanelStyle {
            name,
            axis: "new / base (above 1: slower)",
            reference: 1.0,
            note: "With its interval for this cell alone. Of `none`: time for the same bytes; of a tool: its overhead.",
        };
        together(panels.iter().map(|of| panel(of, metrics, what)).collect(), figure)
    };
    let calls = of("new / base, time per call,", figures::CALLS, ", time per call");
    of("new / base", figures::WHOLE, "").into_iter().chain(calls).collect()
}

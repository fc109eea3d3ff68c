// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trend as tables: a row per point, a column per probe configuration and metric, with changes
//! marked and described.

use bpfassay_stats::change_points::ChangePoint;

use super::{
    Style, finished, markdown,
    table::{Remarks, TextTable},
    text,
};
use crate::{
    labels,
    trend::{Quantity, Trend, TrendSeries},
};

/// Renders `trend` as text.
#[must_use]
pub fn trend_text(trend: &Trend, style: Style) -> String {
    finished(tables(trend).into_iter().map(|table| text::one(table, style)).collect::<Vec<_>>().join("\n"))
}

/// Renders `trend` as Markdown.
#[must_use]
pub fn trend_markdown(trend: &Trend) -> String {
    finished(tables(trend).iter().map(markdown::one).collect::<Vec<_>>().join("\n"))
}

fn tables(trend: &Trend) -> Vec<TextTable> {
    let groups = trend.groups();
    groups
        .into_iter()
        .map(|(arch, case, file_system)| {
            let series: Vec<&TrendSeries> = trend
                .series
                .iter()
                .filter(|series| series.arch == arch && series.case == case && series.file_system == file_system)
                .collect();
            table(trend, format!("{arch}, {case}, {file_system}, clock {}", trend.clock), &series)
        })
        .collect()
}

fn table(trend: &Trend, title: String, series: &[&TrendSeries]) -> TextTable {
    let mut remarks = Remarks::default();
    let mut columns = vec!["kernel".to_owned()];
    columns.extend(series.iter().map(|series| format!("{} {}, {}", series.under_test, series.metric, series.quantity)));
    let points = series.iter().map(|series| series.points.len()).max().unwrap_or(0);
    let rows = (0..points)
        .map(|index| {
            let label = series.iter().find_map(|series| series.points.get(index)).map(|point| point.label.clone());
            let mut row = vec![label.unwrap_or_default()];
            row.extend(series.iter().map(|series| cell(series, index, &mut remarks)));
            row
        })
        .collect();
    let mut legend = vec![format!(
        "[n]: from here on another level, by more than {}: optimal partitioning with the noise of replicates and of the layout, tested at {} over all series (Holm).",
        trend.margin, trend.error_rate
    )];
    if series.iter().any(|series| matches!(series.quantity, Quantity::DirectCost | Quantity::InstructionsPerCall)) {
        legend.push("instructions, not cycles: cache misses and traps are not priced.".to_owned());
    }
    TextTable { rows, remarks: remarks.0, legend, ..TextTable::new(title, columns) }
}

fn cell(series: &TrendSeries, index: usize, remarks: &mut Remarks) -> String {
    let Some(point) = series.points.get(index) else { return String::new() };
    let shown = match point.value.value() {
        Some(&value) => number(series.quantity, value),
        None => return labels::NONE.to_owned(),
    };
    let changes = series.segmentation.value().map(|found| found.changes.as_slice()).unwrap_or_default();
    match changes.iter().find(|change| change.first_after == index) {
        Some(change) => format!("{shown} {}", remarks.mark(described(series, change))),
        None => shown,
    }
}

fn number(quantity: Quantity, value: f64) -> String {
    match quantity {
        Quantity::DirectCost | Quantity::InstructionsPerCall => format!("{value:.1}"),
        Quantity::Overhead => format!("{value:.4}"),
        Quantity::Bandwidth | Quantity::TimePerCall => labels::number(value),
    }
}

/// Describes a change: `fexit write: instructions/call from 6.18.12 to 6.18.13: 1.10 times as
/// much`.
pub(super) fn described(series: &TrendSeries, change: &ChangePoint) -> String {
    let label = |index: usize| series.points.get(index).map(|point| point.label.as_str()).unwrap_or_default();
    let ratio = labels::ratio(&change.ratio);
    let place = match change.earliest == change.latest {
        true => String::new(),
        false => format!(" (the first of them may be any from {} to {})", label(change.earliest), label(change.latest)),
    };
    format!(
        "{} {}: {} from {} to {}: {ratio} times as much{place}",
        series.under_test,
        series.metric,
        series.quantity,
        label(change.last_before),
        label(change.first_after),
    )
}

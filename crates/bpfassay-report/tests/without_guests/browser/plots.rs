// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks plots in the browser: they are drawn and legible, and their marks match results.json.

use std::collections::BTreeSet;

use bpfassay_results::{CellAccuracy, CellMetric, CellResult, Results};
use bpfassay_study::by_version;
use serde::Deserialize;

use super::chromium::Browser;

/// Tolerance in pixels of the plot's own unit: half a mark, and a pixel by which the middle of a
/// number's box depends on the font.
const NEAR: f64 = 3.0;

/// The smallest height of letters, in CSS pixels.
const LETTERS: f64 = 9.0;

/// A dot plot: the numbers below its axis with their positions, the heights of its labels, and the
/// heights and positions of its marks by series.
#[derive(Debug, Deserialize)]
struct Drawn {
    title: String,
    ticks: Vec<(f64, f64)>,
    labels: Vec<(String, f64)>,
    circles: Vec<(f64, f64)>,
    squares: Vec<(f64, f64)>,
}

/// Half the height of a row, in the plot's own unit.
const HALF_A_ROW: f64 = 13.0;

impl Drawn {
    /// Returns the positions of the marks in the row of `label`.
    fn marks(&self, label: &str, marks: &[(f64, f64)]) -> Vec<f64> {
        let rows: Vec<f64> = self.labels.iter().filter(|(known, _)| known == label).map(|(_, at)| *at).collect();
        let is_in = |height: f64| rows.iter().any(|row| (row - height).abs() < HALF_A_ROW);
        marks.iter().filter(|(height, _)| is_in(*height)).map(|(_, at)| *at).collect()
    }
}

/// Checks that each figure has its position on the axis that the ticks define.
fn assert_at(title: &str, ticks: &[(f64, f64)], marks: &[f64], values: &[f64]) {
    assert_eq!(marks.len(), values.len(), "{title}: {values:?}");
    if values.iter().all(|value| value.abs() < 1e-9) {
        // An axis with only zeros has equal numbers.
        return;
    }
    let (first, last) = (ticks.first().unwrap(), ticks.last().unwrap());
    let per_unit = (last.0 - first.0) / (last.1 - first.1);
    for (at, value) in marks.iter().zip(values) {
        let expected = first.0 + (value - first.1) * per_unit;
        assert!((at - expected).abs() <= NEAR, "{title}: {value} is drawn at {at}, not at {expected}");
    }
}

/// A figure of results.json, if there is one.
type Row<'a> = (&'a CellMetric, Option<&'a CellAccuracy>);
type Value = fn(&CellResult, Row<'_>) -> Option<f64>;
/// The figures that plots show, by name.
const FIGURES: [(&str, Value); 3] = [
    ("relative overhead", |cell, (metric, _)| {
        let figure = if cell.is_baseline() { &metric.control } else { &metric.overhead };
        // The axis is in per cent.
        figure.value().map(|overhead| (overhead.estimate.value - 1.0) * 100.0)
    }),
    ("relative error", |_, (_, accuracy)| {
        accuracy?.relative_error_ior_interval.value().map(|summary| summary.center())
    }),
    ("extra instructions per call", |cell, (metric, _)| {
        let figure = if cell.is_baseline() { &metric.control_cost } else { &metric.cost };
        figure.value().map(|cost| cost.per_call.value)
    }),
];

/// Checks that every overhead of results.json is in a dot plot, in the row of its cell and at its
/// position, and that every cell has a row.
pub(crate) fn assert_marks(browser: &mut Browser, results: &Results) {
    let drawn = browser.evaluate(
        "[...document.querySelectorAll('#overhead figure')].map(figure => { const svg = figure.querySelector('svg'); \
         const middle = mark => { const box = mark.getBBox(); return [box.y + box.height / 2, box.x + box.width / 2]; }; \
         const texts = [...svg.querySelectorAll('text')]; const shown = text => text.textContent.trim(); \
         return { title: figure.querySelector('figcaption').textContent, \
           ticks: texts.filter(text => /^[-+]?[0-9.]+%$/.test(shown(text))) \
             .map(text => [middle(text)[1], parseFloat(shown(text))]).sort((a, b) => a[0] - b[0]), \
           labels: texts.map(text => [shown(text), middle(text)[0]]), \
           circles: [...svg.querySelectorAll('circle')].map(middle), \
           squares: [...svg.querySelectorAll('polygon')].map(middle) }; })",
    );
    let drawn: Vec<Drawn> = serde_json::from_value(drawn).unwrap();
    assert!(drawn.len() == 1 || drawn[1].title.ends_with(", wide intervals"), "{drawn:?}");
    let (_, value) = FIGURES[0];
    let mut shown = 0;
    for cell in results.cells.iter().filter(|cell| !cell.is_baseline()) {
        let label = format!("{} {}", cell.target, cell.under_test());
        let is_label = |known: &str| known == label || known == format!("{label} *");
        let label = drawn[0].labels.iter().find(|(known, _)| is_label(known)).map(|(known, _)| known.as_str());
        let label = label.unwrap_or_else(|| panic!("{} has no row", cell.cell));
        for (metric, marks) in
            [("write", (|of| &of.circles) as fn(&Drawn) -> &Vec<(f64, f64)>), ("read", |of| &of.squares)]
        {
            let figure = cell.rows().find(|(known, _)| &*known.name == metric).and_then(|row| value(cell, row));
            let of_plots: Vec<_> = drawn.iter().map(|plot| (plot, plot.marks(label, marks(plot)))).collect();
            match of_plots.iter().filter(|(_, marks)| !marks.is_empty()).collect::<Vec<_>>().as_slice() {
                [] => assert_eq!(figure, None, "{label}, {metric}"),
                [(plot, marks)] => assert_at(&plot.title, &plot.ticks, marks, &[figure.unwrap()]),
                _ => panic!("{label}, {metric}: in two plots"),
            }
            shown += usize::from(figure.is_some());
        }
    }
    let marks: usize = drawn.iter().map(|plot| plot.circles.len() + plot.squares.len()).sum();
    assert_eq!(marks, shown, "a mark is of no cell");
}

/// A plot along kernels: the numbers of its vertical axis with their heights, and the heights of
/// its marks from left to right.
#[derive(Debug, Deserialize)]
struct Along {
    title: String,
    ticks: Vec<(f64, f64)>,
    /// Marks of the first, second and third series.
    marks: [Vec<f64>; 3],
}

/// Checks that all panels of a figure on one axis have the same numbers at the same positions.
pub(crate) fn assert_one_axis(browser: &mut Browser, group: &str) {
    let axes = browser.evaluate(&format!(
        "[...document.querySelectorAll('#{group} figure')].filter(figure => !figure.querySelector('figcaption').textContent.endsWith('wide intervals')) \
         .map(figure => JSON.stringify([...figure.querySelector('svg').querySelectorAll('text')].filter(text => /^[-+]?[0-9.]+%?$/.test(text.textContent.trim())) \
           .map(text => [text.textContent.trim(), Math.round(text.getBBox().x)]).sort()))"
    ));
    let axes: Vec<String> = serde_json::from_value(axes).unwrap();
    assert!(axes.len() > 1 && axes[0].len() > 10, "{group}: {axes:?}");
    assert!(axes.iter().all(|axis| *axis == axes[0]), "{group}: {axes:#?}");
}

/// Checks that every figure of a series of kernels has its height, with a curve per probe
/// configuration.
pub(crate) fn assert_along_kernels(browser: &mut Browser, results: &Results) {
    let drawn = browser.evaluate(
        "[...document.querySelectorAll('figure')].map(figure => { const svg = figure.querySelector('svg'); \
         const middle = mark => { const box = mark.getBBox(); return [box.x + box.width / 2, mark.points.length > 3 ? box.y + box.height / 2 : box.y + 6]; }; \
         const heights = marks => marks.sort((a, b) => a[0] - b[0]).map(mark => mark[1]); \
         const polygons = corners => [...svg.querySelectorAll('polygon')].filter(mark => (mark.points.length > 3) === (corners > 3)).map(middle); \
         return { title: figure.querySelector('figcaption').textContent, \
           ticks: [...svg.querySelectorAll('text:not([transform])')].filter(text => /^[-+]?[0-9.]+%?$/.test(text.textContent.trim())) \
             .map(text => { const box = text.getBBox(); return [box.y + box.height / 2, parseFloat(text.textContent)]; }) \
             .sort((a, b) => a[0] - b[0]), \
           marks: [heights([...svg.querySelectorAll('circle')].map(mark => [mark.cx.baseVal.value, mark.cy.baseVal.value])), \
             heights(polygons(4)), heights(polygons(3))] }; })",
    );
    let drawn: Vec<Along> = serde_json::from_value(drawn).unwrap();
    let mut shown = 0;
    let archs: BTreeSet<_> = results.plan.targets().iter().map(|target| target.arch).collect();
    for arch in archs {
        for (name, value) in FIGURES {
            for metric in ["write", "read"] {
                let file_system = &results.cells[0].file_system;
                let title = format!("{arch}, {file_system}, {metric}: {name} by probe configuration and kernel");
                let plot = drawn.iter().find(|plot| plot.title == title);
                let plot = plot.unwrap_or_else(|| panic!("no plot {title:?}"));
                let mut cells: Vec<_> = results.cells.iter().filter(|cell| cell.target.arch == arch).collect();
                cells.sort_by(|a, b| by_version(&a.target.kernel, &b.target.kernel));
                let mut series: Vec<(String, Vec<f64>)> = Vec::new();
                for cell in cells {
                    let row = cell.rows().find(|row| &*row.0.name == metric);
                    let value = row.and_then(|row| value(cell, row));
                    match series.iter_mut().find(|(name, _)| *name == cell.under_test()) {
                        Some((_, values)) => values.extend(value),
                        None => series.push((cell.under_test(), value.into_iter().collect())),
                    }
                }
                for (marks, (_, values)) in plot.marks.iter().zip(&series) {
                    assert_at(&title, &plot.ticks, marks, values);
                    shown += values.len();
                }
                assert!(plot.marks.iter().skip(series.len()).all(Vec::is_empty), "{title}: {plot:?}");
            }
        }
    }
    assert!(shown > results.cells.len(), "{shown} figures");
}

/// Checks that every plot is drawn within its bounds, in legible letters. Returns the violations.
pub(crate) fn unreadable(browser: &mut Browser, what: &str) -> Vec<String> {
    let plots = browser.evaluate(
        "[...document.querySelectorAll('figure')].map(figure => { const svg = [...figure.querySelectorAll('svg')].find(svg => svg.getBoundingClientRect().width > 0); \
         const bounds = svg.getBoundingClientRect(); const texts = [...svg.querySelectorAll('text')].filter(text => text.textContent.trim()); \
         const outside = texts.filter(text => { const box = text.getBoundingClientRect(); \
           return box.left < bounds.left - 1 || box.right > bounds.right + 1 || box.top < bounds.top - 1 || box.bottom > bounds.bottom + 1; }); \
         const boxes = texts.map(text => text.getBoundingClientRect()); \
         const overlapping = texts.filter((_, i) => boxes.some((other, j) => i != j && \
           Math.min(boxes[i].right, other.right) - Math.max(boxes[i].left, other.left) > 1 && \
           Math.min(boxes[i].bottom, other.bottom) - Math.max(boxes[i].top, other.top) > 1)); \
         return { title: figure.querySelector('figcaption').textContent, width: bounds.width, texts: texts.length, \
           outside: outside.map(text => text.textContent), overlapping: overlapping.map(text => text.textContent), \
           letters: Math.min(...texts.map(text => parseFloat(text.getAttribute('font-size')))) * bounds.width / svg.viewBox.baseVal.width, \
           marks: svg.querySelectorAll('circle, polygon, path, polyline').length }; })",
    );
    let plots = plots.as_array().unwrap();
    let is_readable = |plot: &&serde_json::Value| {
        let number = |name: &str| plot[name].as_f64().unwrap();
        let is_drawn = number("width") > 200.0 && number("texts") > 2.0 && number("marks") > 0.0;
        let none = |name: &str| plot[name].as_array().unwrap().is_empty();
        is_drawn && none("outside") && none("overlapping") && number("letters") >= LETTERS
    };
    plots.iter().filter(|plot| !is_readable(plot)).map(|plot| format!("{what}: {plot}")).collect()
}

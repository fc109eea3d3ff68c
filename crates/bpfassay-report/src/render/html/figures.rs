// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the plots of a report.

mod along;
pub(super) mod axis;
pub(super) mod dots;
mod icicle;
mod programs;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bpfassay_protocol::{Operation, job::WORK, message::RunFigures};
use bpfassay_stats::{Summary, relative_error::CounterReading};

use self::{
    along::along_kernels,
    axis::{Panel, PlotStyle, together},
    dots::dots,
    icicle::icicles,
    programs::verified_along_kernels,
};
use super::plot::{self, Curves, DotRow, Mark, Sizes};
use crate::{
    derive::readings,
    render::{result_summary::state_of, study, table::CellNames},
};
use bpfassay_results::{CellAccuracy, CellMetric, CellResult, Outcome, Results};

/// The metrics that plots of cells show, in the order of their colours: bandwidths, and the work as
/// a whole.
pub(super) const WHOLE: &[&str] = &[Operation::Write.name(), Operation::Read.name(), WORK];

/// The metrics of the time per call, in the order of their colours.
pub(super) const CALLS: &[&str] = &["write-call", "read-call"];

/// A plot with its texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plot {
    /// The title; also the text alternative of the picture.
    pub(super) title: String,
    pub(super) svg: Sizes,
    /// The name of the axis, for the narrow size, which has no room for it.
    pub(super) axis: String,
    /// Names of the series, in the order of their colours and marks; empty for a series without
    /// marks.
    pub(super) series: Vec<String>,
    /// How to read the plot.
    pub(super) note: String,
    /// Parts that the plot cannot show fully, on demand: role, function and figure.
    pub(super) parts: Vec<[String; 3]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plots {
    /// An identifier on the page.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) plots: Vec<Plot>,
}

impl Plots {
    /// Returns how to read the plots, if there are several with the same note.
    pub(super) fn note(&self) -> Option<&str> {
        let [first, others @ ..] = self.plots.as_slice() else { return None };
        let is_same = !others.is_empty() && others.iter().all(|plot| plot.note == first.note);
        is_same.then_some(first.note.as_str())
    }
}

/// Makes all plots for which there are figures.
pub(super) fn plots(results: &Results) -> Vec<Plots> {
    let all = [
        Plots { id: "series", title: "Along the kernels", plots: along_kernels(results) },
        Plots { id: "verified", title: "Programs along the kernels", plots: verified_along_kernels(results) },
        Plots { id: "overhead", title: "Relative overhead", plots: overheads(results) },
        Plots { id: "calls", title: "Relative overhead per call", plots: of_cells(results, OVERHEAD_PER_CALL).0 },
        Plots { id: "error", title: "Relative error", plots: of_cells(results, RELATIVE_ERROR).0 },
        Plots { id: "cost", title: "Extra instructions per call", plots: of_cells(results, COST).0 },
        Plots { id: "direct", title: "Direct cost", plots: icicles(results) },
        Plots { id: "bandwidth", title: "Bandwidth over time", plots: over_time(results) },
    ];
    all.into_iter().filter(|group| !group.plots.is_empty()).collect()
}

/// A cell and the bytes of each call, if the workload reports them.
type WithSize<'a> = (&'a CellResult, Option<u64>);

type MeasuredMetric<'a> = (&'a CellMetric, Option<&'a CellAccuracy>);

fn row<'a>(cell: &'a CellResult, name: &str) -> Option<MeasuredMetric<'a>> {
    cell.rows().find(|(metric, _)| &*metric.name == name)
}

/// A figure that plots show for cells.
#[derive(Clone, Copy)]
struct PlottedFigure {
    name: &'static str,
    metrics: &'static [&'static str],
    style: PlotStyle<'static>,
    mark: fn(&CellResult, MeasuredMetric<'_>) -> Option<Mark>,
}

const OVERHEAD: PlottedFigure = PlottedFigure {
    name: "relative overhead",
    metrics: WHOLE,
    style: PlotStyle {
        axis: "overhead: time for the same bytes beyond the baseline's",
        unit: "%",
        reference: 0.0,
        note: "Right of or above 0%: slower than without a probe; bars: 95 % intervals. `none` is the baseline against itself: the noise floor.",
    },
    mark: |cell, (metric, _)| {
        let figure = metric.compared(cell.is_baseline());
        figure.value().map(|overhead| Mark::of(&overhead.estimate).percent())
    },
};

const OVERHEAD_PER_CALL: PlottedFigure = PlottedFigure {
    name: "relative overhead per call",
    metrics: CALLS,
    style: PlotStyle {
        axis: "overhead: time per call beyond the baseline's",
        note: "Of the calls that move the data, without open, fsync and close. `none` is the baseline against itself: the noise floor.",
        ..OVERHEAD.style
    },
    ..OVERHEAD
};

const RELATIVE_ERROR: PlottedFigure = PlottedFigure {
    name: "relative error",
    metrics: WHOLE,
    style: PlotStyle {
        axis: "relative error (bandwidth by IOR / traced)",
        unit: "",
        reference: 1.0,
        note: "1: the tracer saw what IOR reports. Bars reach from the smallest to the largest run.",
    },
    mark: |_, (_, accuracy)| accuracy?.relative_error_ior_interval.value().map(summary),
};

const COST: PlottedFigure = PlottedFigure {
    name: "extra instructions per call",
    metrics: WHOLE,
    style: PlotStyle {
        axis: "instructions per call beyond the baseline's",
        unit: "",
        reference: 0.0,
        note: "By the instruction clock: the same figures on every machine. `none` is the baseline against itself.",
    },
    mark: |cell, (metric, _)| metric.cost_compared(cell.is_baseline()).value().map(|cost| Mark::of(cost.shown())),
};

fn summary(summary: &Summary) -> Mark {
    let interval = (summary.n > 1).then_some((summary.min, summary.max));
    Mark { value: summary.center(), interval }
}

/// Plots overheads: curves, and one row for each cell that has no place in a curve.
fn overheads(results: &Results) -> Vec<Plot> {
    let (mut plots, cells) = of_cells(results, OVERHEAD);
    let interpreted = study::interpreted(results);
    let names = CellNames::of(results);
    let row = |cell: &CellResult| {
        let marks = (0..).zip(OVERHEAD.metrics);
        let marks: Vec<(u8, Mark)> =
            marks.filter_map(|(series, name)| Some((series, (OVERHEAD.mark)(cell, row(cell, name)?)?))).collect();
        let is_interpreted = !marks.is_empty() && interpreted.contains(cell.cell.as_str());
        DotRow {
            label: format!("{} {}{}", names.place(cell), cell.under_test(), if is_interpreted { " *" } else { "" }),
            marks,
            note: if cell.runs.measured > 0 { "not measured" } else { state_of(cell).words() }.to_owned(),
        }
    };
    let rows: Vec<DotRow> = cells.into_iter().filter(|cell| !cell.is_baseline()).map(row).collect();
    let mut note = "One row for each cell; right of 0%: slower than without a tool; bars: 95 % intervals.".to_owned();
    if rows.iter().any(|row| row.label.ends_with(" *")) {
        note.push_str(" *: the kernel interpreted the programs (BPF JIT off).");
    }
    if let Some(limit) = study::limit_of_clock(results) {
        note.push_str(&format!(" Limit: {limit}"));
    }
    plots.extend(dots(
        "relative overhead of each cell",
        rows,
        OVERHEAD.metrics,
        PlotStyle { note: &note, ..OVERHEAD.style },
    ));
    plots
}

/// Creates panels of curves for each target and file system, and returns the cells that are in
/// none. A panel plots against the transfer size if there are several sizes. Targets of a series of
/// kernels share panels: separate panels would be hard to compare.
fn of_cells(results: &Results, of: PlottedFigure) -> (Vec<Plot>, Vec<&CellResult>) {
    let mut panels: Vec<(String, Vec<WithSize<'_>>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let kernels = along::KernelCells::of(results);
    for (cell, planned) in results.cells.iter().zip(results.plan.measured_cells()) {
        let name = format!("{}, {}", cell.target, cell.file_system);
        let workload = results.plan.study.workload(&planned.case);
        let entry = (cell, workload.and_then(|workload| workload.transfer_size(&planned.case)));
        match places.get(&name).and_then(|&index| panels.get_mut(index)) {
            Some((_, cells)) => cells.push(entry),
            None => {
                places.insert(name.clone(), panels.len());
                panels.push((name, vec![entry]));
            }
        }
    }
    let (mut drafts, mut others) = (Vec::new(), Vec::new());
    for (panel, cells) in panels {
        let sizes: BTreeSet<u64> = cells.iter().filter_map(|(_, size)| *size).collect();
        let cases: BTreeSet<&str> = cells.iter().map(|(cell, _)| cell.case.as_str()).collect();
        // A curve has one point per size: other differences between cases would make it jump.
        if sizes.len() > 1 && sizes.len() == cases.len() {
            drafts.extend(of.metrics.iter().map(|name| against_size(&panel, &cells, name, of)));
        } else if cells.first().is_some_and(|(cell, _)| kernels.are_series(&cell.target)) {
            drafts.extend(kernels.panels(&cells, of));
        } else {
            others.extend(cells.iter().map(|(cell, _)| *cell));
        }
    }
    (together(&drafts, of.style), others)
}

/// Curves by what is under test. The colours are the same in all plots of the same cells, whichever
/// figures were measured.
#[derive(Default)]
struct Curved(Vec<(String, Vec<(f64, Mark)>)>);

impl Curved {
    /// Adds the figure of `cell`, if it has one, at a position on the axis.
    fn add(&mut self, cell: &CellResult, at: f64, mark: Option<Mark>) {
        let name = cell.under_test();
        let index = self.0.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            self.0.push((name, Vec::new()));
            self.0.len() - 1
        });
        self.0[index].1.extend(mark.map(|mark| (at, mark)));
    }

    /// Returns the names of the curves, empty without points, and the points of all curves.
    fn named(self) -> (Vec<String>, Vec<Vec<(f64, Mark)>>) {
        let name = |(name, points): (String, Vec<_>)| (if points.is_empty() { String::new() } else { name }, points);
        self.0.into_iter().map(name).unzip()
    }
}

fn against_size(panel: &str, cells: &[WithSize<'_>], name: &str, of: PlottedFigure) -> Panel {
    let mut series = Curved::default();
    for (cell, size) in cells {
        let Some(size) = size else { continue };
        #[expect(clippy::cast_precision_loss, reason = "a place on an axis")]
        series.add(cell, *size as f64 / 1024.0, row(cell, name).and_then(|row| (of.mark)(cell, row)));
    }
    let (names, mut points) = series.named();
    for points in &mut points {
        points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    }
    let curves = Curves {
        along: "transfer size in KiB".to_owned(),
        quantity: of.style.axis.to_owned(),
        reference: Some(of.style.reference),
        logarithmic: true,
        series: points,
        ..Curves::default()
    };
    Panel { title: format!("{panel}, {name}: {} against transfer size", of.name), series: names, curves }
}

/// Plots the first measured run of each sampled cell: what the tracer saw per interval, with IOR's
/// bandwidth.
fn over_time(results: &Results) -> Vec<Plot> {
    let Some(interval_ms) = results.plan.study.design.sampling_interval_ms else { return Vec::new() };
    let mut first: BTreeMap<&str, &RunFigures> = BTreeMap::new();
    for run in &results.runs {
        if let Outcome::Measured(figures) = &run.record.outcome
            && !run.record.control
        {
            first.entry(&run.record.cell).or_insert(figures);
        }
    }
    let of_cell = |cell: &CellResult| {
        let figures = first.get(cell.cell.as_str())?;
        let plots = cell.metrics.iter().filter_map(|metric| {
            let samples = readings(figures, metric.operation?, interval_ms);
            let traced = instantaneous(&samples);
            let reported = metric.value.value()?.center();
            let (start, end) = (traced.first()?.0, traced.last()?.0);
            traced.iter().any(|(_, mark)| mark.value > 0.0).then_some(())?;
            let flat = [start, end].map(|at| (at, Mark { value: reported, interval: None }));
            let curves = Curves {
                along: "seconds of the guest".to_owned(),
                quantity: "MiB/s".to_owned(),
                series: vec![traced, flat.into()],
                ..Curves::default()
            };
            let svg = Sizes::both(|size| plot::curves(&curves, size))?;
            Some(Plot {
                axis: curves.quantity,
                title: format!("{}, {}: traced bandwidth over time", cell.cell, metric.name),
                svg,
                series: vec!["traced".to_owned(), "by IOR, mean of the runs".to_owned()],
                note: format!("The first run of the cell, sampled every {interval_ms} ms."),
                ..Plot::default()
            })
        });
        Some(plots.collect::<Vec<_>>())
    };
    results.cells.iter().filter(|cell| !cell.is_baseline()).filter_map(of_cell).flatten().collect()
}

/// Returns bandwidths in MiB/s at the ends of intervals, in seconds since the first reading.
fn instantaneous(samples: &[CounterReading]) -> Vec<(f64, Mark)> {
    #[expect(clippy::cast_precision_loss, reason = "points of a plot")]
    let rate = |pair: &[CounterReading]| {
        let [before, after] = pair else { return None };
        let seconds = after.at_ns.checked_sub(before.at_ns).filter(|ns| *ns > 0)? as f64 / 1e9;
        let moved = after.bytes.saturating_sub(before.bytes) as f64 / f64::from(1 << 20);
        let since = after.at_ns.saturating_sub(samples.first()?.at_ns) as f64 / 1e9;
        Some((since, Mark { value: moved / seconds, interval: None }))
    };
    samples.windows(2).filter_map(rate).collect()
}

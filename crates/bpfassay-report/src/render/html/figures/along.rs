// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plots along a series of kernels.

use std::collections::{BTreeMap, HashMap};

use bpfassay_protocol::Arch;
use bpfassay_study::{Target, by_version};

use super::{
    super::{
        super::trend::described,
        plot::{self, Curves, Mark, Sizes},
    },
    Curved, Panel, Plot, PlottedFigure, WithSize, row,
};
use crate::trend::{Quantity, TrendSeries, trend};
use bpfassay_results::{CellResult, Figure, Results};

/// The smallest number of kernels of one architecture that form a series.
const SERIES_FROM: usize = 5;

/// The cells of results by architecture and file system, and the architectures with a series of
/// kernels.
pub(super) struct KernelCells<'a> {
    series: Vec<Arch>,
    alike: HashMap<(Arch, &'a str), Vec<&'a CellResult>>,
}

impl<'a> KernelCells<'a> {
    pub(super) fn of(results: &'a Results) -> Self {
        let mut counts: BTreeMap<Arch, usize> = BTreeMap::new();
        for target in results.plan.targets() {
            *counts.entry(target.arch).or_default() += 1;
        }
        let mut alike: HashMap<_, Vec<&CellResult>> = HashMap::new();
        for cell in &results.cells {
            alike.entry((cell.target.arch, cell.file_system.as_str())).or_default().push(cell);
        }
        let series = counts.into_iter().filter(|(_, count)| *count >= SERIES_FROM).map(|(arch, _)| arch).collect();
        Self { series, alike }
    }

    /// Whether `target` belongs to a series of kernels.
    pub(super) fn are_series(&self, target: &Target) -> bool {
        self.series.contains(&target.arch)
    }

    /// Creates one panel per workload case and metric, with a curve per probe configuration, for
    /// the series to which `of_one` belongs. `of_one` has the cells of one target and file system.
    /// Returns panels for the first target of the series only.
    pub(super) fn panels(&self, of_one: &[WithSize<'_>], of: PlottedFigure) -> Vec<Panel> {
        let Some((model, _)) = of_one.first() else { return Vec::new() };
        let alike =
            self.alike.get(&(model.target.arch, model.file_system.as_str())).map(Vec::as_slice).unwrap_or_default();
        if alike.first().is_none_or(|first| first.target != model.target) {
            return Vec::new();
        }
        let mut kernels: Vec<&str> = alike.iter().map(|cell| cell.target.kernel.as_str()).collect();
        kernels.sort_unstable();
        kernels.dedup();
        kernels.sort_by(|a, b| by_version(a, b));
        let mut cases: Vec<(&str, Vec<&CellResult>)> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for &cell in alike {
            let index = *places.entry(&cell.case).or_insert(cases.len());
            match cases.get_mut(index) {
                Some((_, cells)) => cells.push(cell),
                None => cases.push((&cell.case, vec![cell])),
            }
        }
        let mut plots = Vec::new();
        for (case, cells) in &cases {
            let name = match cases.as_slice() {
                [_] => format!("{}, {}", model.target.arch, model.file_system),
                _ => format!("{}, {}, {case}", model.target.arch, model.file_system),
            };
            plots.extend(of.metrics.iter().map(|metric| panel((&name, metric), &kernels, cells, of)));
        }
        plots
    }
}

/// Returns the position of a name on an axis.
pub(super) fn place(index: usize) -> f64 {
    f64::from(u32::try_from(index).unwrap_or(u32::MAX))
}

fn panel((name, metric): (&str, &str), kernels: &[&str], cells: &[&CellResult], of: PlottedFigure) -> Panel {
    let mut series = Curved::default();
    let mut of_kernel: HashMap<&str, Vec<&CellResult>> = HashMap::new();
    for cell in cells {
        of_kernel.entry(&cell.target.kernel).or_default().push(cell);
    }
    for (index, kernel) in kernels.iter().enumerate() {
        for cell in of_kernel.get(kernel).into_iter().flatten() {
            series.add(cell, place(index), row(cell, metric).and_then(|row| (of.mark)(cell, row)));
        }
    }
    let (names, points) = series.named();
    let curves = Curves {
        quantity: of.style.axis.to_owned(),
        reference: Some(of.style.reference),
        names: kernels.iter().map(|kernel| (*kernel).to_owned()).collect(),
        series: points,
        ..Curves::default()
    };
    Panel { title: format!("{name}, {metric}: {} by probe configuration and kernel", of.name), series: names, curves }
}

/// Plots figures of one architecture from kernel to kernel, with the levels between changes.
pub(super) fn along_kernels(results: &Results) -> Vec<Plot> {
    // Skip the slow search for changes.
    if KernelCells::of(results).series.is_empty() {
        return Vec::new();
    }
    let Ok(trend) = trend(&[(results.plan.study.name.clone(), results)]) else { return Vec::new() };
    let plot_of = |series: &TrendSeries| {
        if series.points.len() < SERIES_FROM || matches!(series.quantity, Quantity::Bandwidth | Quantity::TimePerCall) {
            return None;
        }
        let points: Vec<_> = series
            .points
            .iter()
            .enumerate()
            .filter_map(|(index, point)| Some((place(index), Mark { value: *point.value.value()?, interval: None })))
            .collect();
        let stretches = series.segmentation.value().map(|found| found.stretches.as_slice()).unwrap_or_default();
        let levels =
            stretches.iter().map(|stretch| (1, place(stretch.first)..place(stretch.last), stretch.level.value));
        let curves = Curves {
            quantity: series.quantity.to_string(),
            names: series.points.iter().map(|point| point.label.clone()).collect(),
            series: vec![points],
            levels: levels.collect(),
            ..Curves::default()
        };
        let svg = Sizes::both(|size| plot::curves(&curves, size))?;
        Some(Plot {
            axis: curves.quantity,
            title: format!(
                "{}, {}, {}, {}: {} along the kernels",
                series.arch, series.under_test, series.case, series.metric, series.quantity
            ),
            svg,
            series: vec!["kernel".to_owned(), "level between changes".to_owned()],
            note: match &series.segmentation {
                Figure::Value(found) if found.changes.is_empty() => "No change of level is shown.".to_owned(),
                Figure::Value(found) => {
                    found.changes.iter().map(|change| described(series, change)).collect::<Vec<_>>().join("; ") + "."
                }
                Figure::NotMeasured(reason) => format!("Changes of level not looked for: {reason}."),
            },
            ..Plot::default()
        })
    };
    trend.series.iter().filter_map(plot_of).collect()
}

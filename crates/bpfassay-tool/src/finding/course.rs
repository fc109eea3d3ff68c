// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sequence of values of cumulative figures.

use std::collections::BTreeMap;

use super::evidence::KernelFacts;
use crate::{
    file::{Counting, Report},
    readings::{Readings, ReportedSample},
};

/// Values of each cumulative figure and subject, in the order of reports.
pub(super) fn series<'r>(
    report: &Report,
    readings: &'r Readings,
) -> BTreeMap<(usize, &'r Option<String>), Vec<&'r ReportedSample>> {
    let mut series: BTreeMap<_, Vec<&ReportedSample>> = BTreeMap::new();
    for sample in &readings.samples {
        if report.figures.get(sample.figure).is_some_and(|figure| figure.counting == Counting::Cumulative) {
            series.entry((sample.figure, &sample.subject)).or_default().push(sample);
        }
    }
    series
}

/// Names a figure and its subject for evidence.
pub(super) fn of(report: &Report, figure: usize, subject: Option<&str>) -> String {
    let value = report.figures.get(figure).map(crate::file::ReportedFigure::name).unwrap_or_default();
    subject.map_or_else(|| format!("`{value}`"), |subject| format!("`{value}` of {subject}"))
}

/// Whether each report is complete, as pages and maps are. Missing names then do not exist.
pub(super) const fn reports_all(report: &Report) -> bool {
    report.form.stream().is_none()
}

/// Says that the figure's map evicts keys, or that it is full. Where the map of the figure is not
/// known, names every full map of the tool.
pub(super) fn of_its_map(report: &Report, figure: usize, kernel: Option<&KernelFacts>) -> String {
    let Some(kernel) = kernel else { return String::new() };
    let maps = report.form.maps();
    let part = report.figures.get(figure).and_then(|figure| figure.part.as_ref());
    let its_map = part.or(if let [map] = maps { Some(map) } else { None });
    // The kernel keeps 15 bytes of a map's name.
    let is_name = |name: &str, map: &str| name == map || name.len() == 15 && map.starts_with(name);
    if let Some(map) = its_map
        && kernel.evicting.iter().any(|name| is_name(name, map))
    {
        return format!("; its map `{map}` evicts keys (LRU), on several CPUs before it is full");
    }
    let full = kernel.full_maps.iter().flatten();
    full.filter(|full| its_map.is_none_or(|map| is_name(&full.name, map))).map(|full| format!("; {full}")).collect()
}

/// Reason for not evaluating sequences of values.
pub(super) const NEEDS_TWO: &str = "no figure that counts cumulatively was reported twice";

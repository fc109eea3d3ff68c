// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sequence of values of cumulative figures.

use std::{borrow::Cow, collections::BTreeMap};

use super::evidence::{FullMap, KernelFacts};
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

/// Returns the name of the map that holds the figure, as the kernel has it or longer; `None` if the
/// tool file does not tell. bpftrace calls the map of `@reads` `AT_reads`.
pub(super) fn its_map(report: &Report, figure: usize) -> Option<Cow<'_, str>> {
    let maps = report.form.maps();
    let figure = report.figures.get(figure)?;
    if let Some(map) = figure.part.as_ref().or(if let [map] = maps { Some(map) } else { None }) {
        return Some(Cow::Borrowed(map));
    }
    let of_script = figure.value.strip_prefix('@')?.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
    Some(Cow::Owned(format!("AT_{of_script}")))
}

/// Whether `map` is the map that the kernel calls `name`, of which it keeps 15 bytes.
pub(super) fn is_map(name: &str, map: &str) -> bool {
    name == map || name.len() == 15 && map.starts_with(name)
}

/// Says that the figure's map evicts keys, or that it is full. Where the map of the figure is not
/// known, names every full map of the tool.
pub(super) fn of_its_map(report: &Report, figure: usize, kernel: Option<&KernelFacts>) -> String {
    let Some(kernel) = kernel else { return String::new() };
    let its_map = its_map(report, figure);
    if let Some(map) = &its_map
        && kernel.evicting.iter().any(|name| is_map(name, map))
    {
        return format!("; its map `{map}` evicts keys (LRU), on several CPUs before it is full");
    }
    let full = kernel.full_maps.iter().flatten();
    let is_its = |full: &&FullMap| its_map.as_ref().is_none_or(|map| is_map(&full.name, map));
    full.filter(is_its).map(|full| format!("; {full}")).collect()
}

/// Reason for not evaluating sequences of values.
pub(super) const NEEDS_TWO: &str = "no figure that counts cumulatively was reported twice";

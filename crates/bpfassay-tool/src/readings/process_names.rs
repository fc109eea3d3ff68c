// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of the tool file that no report has. Such a name is misspelt, or the tool shows it only
//! after an event, like an exporter's counter or a map key. Names in tables, text events and bare
//! objects' maps are checked before reading.

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_input::document::suggestion;

use super::TextRow;
use crate::file::{Report, ReportForm, ReportedFigure};

/// Limit for names, and for values of a label, that are kept for suggestions.
const MOST: usize = 1024;

/// A name or label value that a figure of the tool file has, and no report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsentName {
    /// Index of the figure in [`Report::figures`].
    pub figure: usize,
    /// Description for messages: a value or label by its name, or a label with its required value.
    pub what: String,
    /// Whether the value of a label is absent, and not a name.
    pub is_value: bool,
    /// Either nothing, or a suggestion that begins with `; `. It is the nearest reported name that
    /// no figure uses.
    pub nearest: String,
}

/// The parts of a figure that rows have.
#[derive(Default)]
struct SeenParts<'f> {
    has_value: bool,
    /// Labels in rows with the figure's value.
    labels: BTreeSet<&'f str>,
    /// Labels of `where` that had the required value in such rows.
    values: BTreeSet<&'f str>,
    /// All names in such rows.
    beside: BTreeSet<String>,
    /// All values that labels of `where` had in such rows.
    others: BTreeMap<&'f str, BTreeSet<String>>,
}

/// The names in all rows.
pub(super) struct RowNames<'f> {
    figures: &'f [ReportedFigure],
    seen: Vec<SeenParts<'f>>,
    /// Names by page, if there are several.
    all: BTreeMap<Option<&'f str>, BTreeSet<String>>,
}

impl<'f> RowNames<'f> {
    /// Creates the record for `report`. `None` if all names of its form are checked earlier.
    pub(super) fn of(report: &'f Report) -> Option<Self> {
        let figures = report.figures.as_slice();
        match report.form {
            ReportForm::JsonLines { .. }
            | ReportForm::Openmetrics { .. }
            | ReportForm::OpenmetricsPages { .. }
            | ReportForm::BpftraceJson { .. }
            | ReportForm::Histogram { .. }
            | ReportForm::Events { line: None, .. } => Some(Self {
                figures,
                seen: figures.iter().map(|_| SeenParts::default()).collect(),
                all: BTreeMap::new(),
            }),
            ReportForm::Table { .. }
            | ReportForm::Events { line: Some(_), .. }
            | ReportForm::Map { .. }
            | ReportForm::Maps { .. } => None,
        }
    }

    /// Adds a row of the page `part`.
    pub(super) fn add(&mut self, part: Option<&'f str>, row: &TextRow<'_>) {
        let all = self.all.entry(part).or_default();
        row.keys().for_each(|name| keep(all, name));
        let is_own = |figure: &ReportedFigure| figure.part.is_none() || figure.part.as_deref() == part;
        for (figure, seen) in self.figures.iter().zip(&mut self.seen).filter(|(figure, _)| is_own(figure)) {
            let has_value = figure.value.is_empty() || row.contains_key(figure.value.as_str());
            seen.has_value |= has_value;
            if !has_value && !figure.blank_is_zero {
                continue;
            }
            row.keys().for_each(|name| keep(&mut seen.beside, name));
            let is_there = |label: &&str| row.contains_key(*label);
            seen.labels.extend(labels(figure).filter(is_there));
            for (label, wanted) in &figure.labelled {
                let Some(value) = row.get(label.as_str()) else { continue };
                if value == wanted {
                    seen.values.insert(label);
                }
                keep(seen.others.entry(label).or_default(), value);
            }
        }
    }

    /// The names that no row had.
    pub(super) fn absent(&self) -> Vec<AbsentName> {
        self.figures
            .iter()
            .zip(&self.seen)
            .enumerate()
            .flat_map(|(index, (figure, seen))| {
                let absent = |what, is_value, nearest| AbsentName { figure: index, what, is_value, nearest };
                let mut all = Vec::new();
                if !seen.has_value {
                    let names = self.all.get(&figure.part.as_deref()).into_iter().flatten();
                    let is_free = |name: &&String| self.figures.iter().all(|other| other.value != **name);
                    let nearest = suggestion(&figure.value, names.filter(is_free).map(String::as_str));
                    all.push(absent(format!("`{}`", figure.value), false, nearest));
                    return all;
                }
                for label in labels(figure).filter(|label| !seen.labels.contains(label)) {
                    let nearest = suggestion(label, seen.beside.iter().map(String::as_str));
                    all.push(absent(format!("`{label}` beside `{}`", figure.name()), false, nearest));
                }
                let is_absent = |(label, _): &(&String, &String)| {
                    seen.labels.contains(label.as_str()) && !seen.values.contains(label.as_str())
                };
                for (label, wanted) in figure.labelled.iter().filter(is_absent) {
                    let values = seen.others.get(label.as_str()).into_iter().flatten();
                    let is_free =
                        |value: &&String| self.figures.iter().all(|other| other.labelled.get(label) != Some(value));
                    let nearest = suggestion(wanted, values.filter(is_free).map(String::as_str));
                    all.push(absent(format!("`{label}` = `{wanted}` beside `{}`", figure.name()), true, nearest));
                }
                all
            })
            .collect()
    }
}

/// Names of the figure's labels.
fn labels(figure: &ReportedFigure) -> impl Iterator<Item = &str> {
    figure.labelled.keys().chain(&figure.label).map(String::as_str)
}

fn keep(names: &mut BTreeSet<String>, name: &str) {
    if names.len() < MOST && !names.contains(name) {
        names.insert(name.chars().take(super::MAX_LABEL).collect());
    }
}

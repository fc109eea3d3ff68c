// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drafts for pages of metrics.

use std::collections::BTreeMap;

use bpfassay_protocol::Operation;

use super::{
    draft::{DraftFigure, ToolDraft, is_name, quoted, shown},
    endpoint_draft::Url,
    guess,
};
use crate::{file::CountedUnit, readings::metrics_sample};

/// Port in the draft if none is known.
const NO_PORT: u16 = 9100;

/// Largest number of values kept per label.
const MAX_VALUES: usize = 16;

/// Whether `text` is a page of metrics: it has samples, comments and nothing else.
pub(super) fn is_page(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    lines.peek().is_some() && lines.all(|line| metrics_sample(line).is_some())
}

/// Labels of a metric, with their values.
type MetricLabels = BTreeMap<String, Vec<String>>;

/// Drafts a tool file for a tool with the page `text`, which `url` serves if given.
pub(super) fn draft(name: &str, seen: &str, url: Option<&Url>, text: &str) -> ToolDraft {
    let mut metrics = BTreeMap::<String, MetricLabels>::new();
    let mut kinds = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            kinds.extend(rest.split_once(' ').map(|(name, kind)| (name.to_owned(), kind.trim().to_owned())));
            continue;
        }
        let Some(row) = metrics_sample(line).filter(|_| !line.starts_with('#')) else { continue };
        let end = line.find(|c: char| c == '{' || c.is_ascii_whitespace()).unwrap_or(line.len());
        let name = &line[..end];
        let labels = metrics.entry(name.to_owned()).or_default();
        for (label, value) in row.iter().filter(|(label, _)| *label != name) {
            let values = labels.entry(label.to_string()).or_default();
            if values.len() < MAX_VALUES && !values.iter().any(|known| known == value) {
                values.push(value.to_string());
            }
        }
    }
    let is_counter = |name: &str| {
        let family = name.strip_suffix("_total").unwrap_or(name);
        [name, family]
            .iter()
            .find_map(|name| kinds.get(*name))
            .is_none_or(|kind| matches!(kind.as_str(), "counter" | "unknown" | "untyped"))
    };
    let figures = metrics.iter().filter(|(name, _)| is_name(name) && is_counter(name));
    // These metrics are about the exporter itself.
    let figures = figures
        .filter(|(name, _)| !["process_", "go_", "promhttp_", "scrape_"].iter().any(|own| name.starts_with(own)));
    let mut figures: Vec<DraftFigure> = figures.flat_map(|(name, labels)| figures_of(name, labels)).collect();
    // Figures with the clearest names come first.
    figures.sort_by_key(|figure| (figure.operations.is_empty(), figure.unit.is_none()));
    let (port, path) = url.map_or((NO_PORT, "/metrics"), |url| (url.port, url.path.as_str()));
    let report = vec![format!("#openmetrics = {{ port = {port}, path = {} }}", quoted(path))];
    let mut start = vec!["# Decide: its arguments: arguments = [\"-i\", \"1\"]".to_owned()];
    match url {
        Some(_) => start.push(format!("ready = {{ port = {port} }}")),
        None => {
            start.push("# Decide: the port on which it serves this page, here and in the report.".to_owned());
            start.push(format!("ready = {{ port = {port} }}"));
        }
    }
    ToolDraft {
        name: name.to_owned(),
        seen: format!("the metrics of {}", shown(seen)),
        source: vec![
            "# Decide: where its program comes from. A page does not show that; this entry stands for it.".to_owned(),
            "binary = [{ arch = \"x86_64\", path = \"exporter\" }]".to_owned(),
        ],
        start,
        report,
        figures,
    }
}

/// Figures that samples of this name can be: one per operation that a label names.
fn figures_of(name: &str, labels: &MetricLabels) -> Vec<DraftFigure> {
    let words = guess::words(name);
    let (unit, scale) = guess::unit(&words);
    let unit = unit.or_else(|| words.iter().any(|word| word == "total").then_some(CountedUnit::Calls));
    let names = || labels.keys().map(String::as_str).filter(|label| is_name(label));
    let (whose, label) = guess::subject(names());
    let figure = |labelled: Vec<(String, String)>, operation: Option<Operation>| DraftFigure {
        value: name.to_owned(),
        labelled,
        operations: operation.into_iter().collect(),
        unit,
        scale,
        whose,
        label: label.clone(),
    };
    let by_operation =
        labels.iter().filter(|(key, _)| is_name(key) && Some(*key) != label.as_ref()).find_map(|(key, values)| {
            let named = values.iter().filter(|value| value.len() <= 255);
            let named: Vec<_> =
                named.filter_map(|value| Some((value, guess::operation(&guess::words(value))?))).collect();
            (!named.is_empty()).then_some((key, named))
        });
    match by_operation {
        Some((key, values)) => values
            .into_iter()
            .map(|(value, operation)| figure(vec![(key.clone(), value.clone())], Some(operation)))
            .collect(),
        None => vec![figure(Vec::new(), guess::operation(&words))],
    }
}

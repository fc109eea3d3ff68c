// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw runs as CSV: one line per run and metric.

use std::collections::BTreeMap;

use super::{finished, format::ReportFormat, plain};
use crate::derive::pairs::accuracy_of;
use bpfassay_results::{Figure, Outcome, Results, RunMetric, RunResult};
use bpfassay_study::Model;

const HEAD: [&str; 18] = [
    "run",
    "cell",
    "arch",
    "kernel",
    "case",
    "file_system",
    "under_test",
    "replicate",
    "round",
    "control",
    "outcome",
    "metric",
    "direct_instructions_per_call",
    "value",
    "unit",
    "relative_error",
    "elapsed_ns",
    "calls",
];

/// The further columns if the study has a model of caches and branches.
const HEAD_OF_MODEL: [&str; 5] = [
    "l1i_misses_per_call",
    "l1d_misses_per_call",
    "l2_misses_per_call",
    "mispredicted_per_call",
    "priced_direct_per_call",
];

pub(super) const FORMAT: ReportFormat = ReportFormat {
    name: "csv",
    about: "A line per run and metric",
    file: None,
    render: |results, _| Ok(csv(results)?.into()),
};

/// Renders `results` as CSV (RFC 4180). A figure that was not measured is an empty field. Text that
/// a spreadsheet would calculate gets an apostrophe before it.
///
/// # Errors
/// [`csv::Error`], which writing into memory never causes.
pub fn csv(results: &Results) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let model = results.plan.study.model.as_ref();
    let head: Vec<&str> = HEAD.iter().chain(model.map_or(&[][..], |_| &HEAD_OF_MODEL)).copied().collect();
    writer.write_record(&head)?;
    let cells: BTreeMap<&str, _> = results.cells.iter().map(|cell| (cell.cell.as_str(), cell)).collect();
    for run in &results.runs {
        let record = &run.record;
        let Some(cell) = cells.get(record.cell.as_str()) else { continue };
        let outcome = match &record.outcome {
            Outcome::Measured(_) => "measured",
            Outcome::Refused(_) => "refused",
            Outcome::Failed(_) => "failed",
        };
        let common = [
            text_field(&record.run),
            text_field(&record.cell),
            record.target.arch.to_string(),
            text_field(&record.target.kernel),
            text_field(&cell.case),
            text_field(&cell.file_system),
            text_field(&cell.under_test()),
            record.replicate.to_string(),
            record.round.to_string(),
            record.control.to_string(),
            outcome.to_owned(),
        ];
        let metrics = run.derived.iter().flat_map(|derived| &derived.metrics);
        let mut rows: Vec<Vec<String>> = metrics.map(|metric| of_metric(run, metric, model)).collect();
        if rows.is_empty() {
            rows.push(vec![String::new(); head.len() - common.len()]);
        }
        for row in rows {
            writer.write_record(common.iter().chain(&row))?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    // All written bytes are text.
    let text = String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok(finished(text))
}

/// Returns the fields of a metric of `run`.
fn of_metric(run: &RunResult, metric: &RunMetric, model: Option<&Model>) -> Vec<String> {
    let accuracy = accuracy_of(run, &metric.name);
    let work = metric.work.value();
    let mut row = vec![
        metric.name.to_string(),
        metric.direct_cost.as_ref().map(field).unwrap_or_default(),
        field(&metric.value),
        text_field(&metric.unit),
        accuracy.map(|accuracy| field(&accuracy.relative_error_ior_interval)).unwrap_or_default(),
        work.map(|work| work.elapsed_ns.to_string()).unwrap_or_default(),
        work.map(|work| work.calls.to_string()).unwrap_or_default(),
    ];
    row.extend(model.map_or_else(Vec::new, |model| of_model(metric, model)));
    row
}

/// Returns the misses of a metric's direct cost by `model`, and that cost with the model's prices;
/// empty fields if there are none.
fn of_model(metric: &RunMetric, model: &Model) -> Vec<String> {
    let direct = metric.direct_cost.as_ref().and_then(Figure::value);
    let Some((direct, misses)) = direct.zip(metric.direct_misses) else {
        return vec![String::new(); HEAD_OF_MODEL.len()];
    };
    let numbers = misses.numbers().into_iter().chain([direct + misses.priced(&model.prices)]);
    numbers.map(|number| number.to_string()).collect()
}

/// Formats a text field. An apostrophe before a text that begins like a formula prevents its
/// calculation.
fn text_field(text: &str) -> String {
    let text = plain::line(text);
    let is_formula = text.trim_start().starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']);
    if is_formula { format!("'{text}") } else { text.into_owned() }
}

fn field(figure: &Figure<f64>) -> String {
    figure.value().map(ToString::to_string).unwrap_or_default()
}

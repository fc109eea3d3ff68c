// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw runs as CSV: one line per run and metric.

use std::collections::BTreeMap;

use super::{finished, format::Format, plain};
use crate::derive::pairs::accuracy_of;
use bpfassay_results::{Figure, Outcome, Results};

/// The head.
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

/// See [`super::FORMATS`].
pub(super) const FORMAT: Format = Format {
    name: "csv",
    about: "A line per run and metric",
    file: None,
    render: |results, _| Ok(csv(results)?.into()),
};

/// `results` as CSV (RFC 4180). A figure that was not measured is an empty field; text that a table program would calculate has an
/// apostrophe before it.
///
/// # Errors
/// [`csv::Error`], which writing into memory does not end in.
pub fn csv(results: &Results) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(HEAD)?;
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
        let rows: Vec<[String; 7]> = metrics
            .map(|metric| {
                let accuracy = accuracy_of(run, &metric.name);
                let work = metric.work.value();
                [
                    metric.name.to_string(),
                    metric.direct_cost.as_ref().map(field).unwrap_or_default(),
                    field(&metric.value),
                    text_field(&metric.unit),
                    accuracy.map(|accuracy| field(&accuracy.relative_error_ior_interval)).unwrap_or_default(),
                    work.map(|work| work.elapsed_ns.to_string()).unwrap_or_default(),
                    work.map(|work| work.calls.to_string()).unwrap_or_default(),
                ]
            })
            .collect();
        if rows.is_empty() {
            writer.write_record(common.iter().map(String::as_str).chain([""; 7]))?;
        }
        for row in rows {
            writer.write_record(common.iter().chain(&row))?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    // All that was written is text.
    let text = String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok(finished(text))
}

/// Text in a cell. One that begins like a formula is none with an apostrophe before it.
fn text_field(text: &str) -> String {
    let text = plain::line(text);
    let is_formula = text.trim_start().starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']);
    if is_formula { format!("'{text}") } else { text.into_owned() }
}

fn field(figure: &Figure<f64>) -> String {
    figure.value().map(ToString::to_string).unwrap_or_default()
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures in Bencher Metric Format: a value for each benchmark and measure, and the ends of its
//! interval if it has one.

use std::collections::BTreeMap;

use bpfassay_stats::Estimate;
use serde::Serialize;

use super::{format::ReportFormat, plain};
use bpfassay_results::{CellMetric, CellResult, Results};

pub(super) const FORMAT: ReportFormat = ReportFormat {
    name: "bencher",
    about: "Costs, overheads and bandwidths with their intervals, as Bencher's JSON, to follow them over commits",
    file: None,
    render: |results, _| Ok(bencher(results)?.into()),
};

/// A value, in the unit that the measure's name contains.
#[derive(Debug, Clone, Copy, Serialize)]
struct BencherValue {
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lower_value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upper_value: Option<f64>,
}

impl BencherValue {
    /// Creates a value without an interval.
    fn bare(value: f64) -> Self {
        Self { value, lower_value: None, upper_value: None }
    }

    fn of(estimate: &Estimate) -> Self {
        let interval = estimate.bounds.interval();
        Self {
            value: estimate.value,
            lower_value: interval.map(|interval| interval.lower),
            upper_value: interval.map(|interval| interval.upper),
        }
    }

    /// Whether JSON can represent the value.
    fn is_finite(&self) -> bool {
        [Some(self.value), self.lower_value, self.upper_value].into_iter().flatten().all(f64::is_finite)
    }
}

/// The measures: their slugs in Bencher, and how to read their value of a metric.
type MeasureOf = fn(&CellMetric) -> Option<BencherValue>;
const MEASURES: [(&str, MeasureOf); 4] = [
    ("direct-instructions-per-call", |metric| Some(BencherValue::bare(metric.direct.as_ref()?.value()?.per_call.mean))),
    ("instructions-per-call", |metric| Some(BencherValue::of(metric.cost.value()?.shown()))),
    ("overhead-ratio", |metric| Some(BencherValue::of(&metric.overhead.value()?.estimate))),
    ("bandwidth-mebibytes-per-second", |metric| {
        let summary = metric.value.value().filter(|_| metric.operation.is_some())?;
        Some(BencherValue::bare(summary.center()))
    }),
];

/// Renders `results` in Bencher Metric Format. Figures that were not measured are left out.
///
/// # Errors
/// [`serde_json::Error`], which texts and finite numbers never cause.
pub fn bencher(results: &Results) -> Result<String, serde_json::Error> {
    let mut benchmarks: BTreeMap<String, BTreeMap<&str, BencherValue>> = BTreeMap::new();
    for cell in &results.cells {
        for metric in &cell.metrics {
            let measured = MEASURES.iter().filter_map(|(name, of)| Some((*name, of(metric)?)));
            let values: BTreeMap<&str, BencherValue> = measured.filter(|(_, value)| value.is_finite()).collect();
            if !values.is_empty() {
                benchmarks.insert(name(cell, metric), values);
            }
        }
    }
    Ok(plain::json(&serde_json::to_string_pretty(&benchmarks)?).into_owned() + "\n")
}

/// Names a benchmark: `x86_64_7.2_quick_nfs4.2_fexit/write`. The name is unique among the metrics
/// of a plan.
fn name(cell: &CellResult, metric: &CellMetric) -> String {
    plain::line(&format!("{}/{}", cell.cell, metric.name)).into_owned()
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics: the figures of a workload's runs and their inputs.

use std::{fmt, ops::Deref, str::FromStr};

use arrayvec::ArrayString;
use bpfassay_protocol::{
    Operation,
    job::{Better, WORK},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name of a metric: lower-case letters, digits and `-`. The fixed size allows its use in small
/// keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "ArrayString<24>")]
#[schemars(with = "ArrayString<24>")]
pub struct MetricName(ArrayString<24>);

/// The text is not a valid metric name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("use at most 24 lower-case letters, digits and `-`")]
pub struct NoMetricName;

impl TryFrom<ArrayString<24>> for MetricName {
    type Error = NoMetricName;

    fn try_from(text: ArrayString<24>) -> Result<Self, NoMetricName> {
        let is_name = !text.is_empty() && text.bytes().all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if is_name { Ok(Self(text)) } else { Err(NoMetricName) }
    }
}

impl FromStr for MetricName {
    type Err = NoMetricName;

    fn from_str(text: &str) -> Result<Self, NoMetricName> {
        ArrayString::from(text).map_err(|_| NoMetricName)?.try_into()
    }
}

impl Deref for MetricName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MetricName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

/// A figure of a workload's runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// Name, unique in the workload.
    pub name: MetricName,
    /// Unit: `1/s`.
    pub unit: String,
    /// Whether higher or lower values are better.
    pub better: Better,
    /// For a bandwidth: the operation that moves the bytes.
    pub operation: Option<Operation>,
    /// For a time per call: the bandwidth metric that the calls belong to.
    pub calls_of: Option<MetricName>,
}

impl Metric {
    pub(super) fn new(name: &str, unit: &str, better: Better) -> Self {
        // All names in this crate are short enough.
        Self { name: name.parse().unwrap_or_default(), unit: unit.to_owned(), better, operation: None, calls_of: None }
    }

    /// The trimmed mean time per call in the phases of the bandwidth `name`, if the workload times
    /// its calls: `write-call`.
    #[must_use]
    pub fn of_calls(name: MetricName) -> Self {
        Self { calls_of: Some(name), ..Self::new(&format!("{name}-call"), "ns/call", Better::Lower) }
    }

    /// The rate of the bytes that `operation` moves.
    pub(super) fn bandwidth(name: &str, operation: Operation) -> Self {
        Self { operation: Some(operation), ..Self::new(name, "MiB/s", Better::Higher) }
    }

    /// Whether bytes can be attributed to the metric: a bandwidth, or the whole work.
    #[must_use]
    pub fn has_accuracy(&self) -> bool {
        self.operation.is_some() || &*self.name == WORK
    }

    /// The metric of the whole work.
    pub(super) fn work(unit: &str, better: Better) -> Self {
        Self::new(WORK, unit, better)
    }
}

/// The report of a workload about one timed phase in one repetition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseReport {
    /// The operation that moves the phase's data.
    pub operation: Operation,
    /// Name of the phase and of its metric.
    pub name: MetricName,
    /// Index of the test in the run, from 0.
    pub test: u32,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Bandwidth in MiB/s.
    pub bandwidth: Option<f64>,
    /// Time from first open to last close, in seconds.
    pub total_s: Option<f64>,
    /// Bytes moved; `None` if the rounded figures in the summary do not determine the number.
    pub bytes: Option<u64>,
}

impl PhaseReport {
    /// The metric of the phase's bandwidth.
    #[must_use]
    pub fn metric(&self) -> Metric {
        Metric::bandwidth(&self.name, self.operation)
    }
}

/// The part of a run's outcome that metrics are computed from.
#[derive(Debug, Clone, Copy)]
pub struct MetricInput<'a> {
    /// The summary that the workload printed or wrote. Untrusted.
    pub summary: &'a str,
    /// Nanoseconds from before the start of the workload until its end. `None` if the clock went
    /// back.
    pub elapsed_ns: Option<u64>,
    /// Nanoseconds in which the guest was not idle; `None` if unknown.
    pub busy_ns: Option<u64>,
}

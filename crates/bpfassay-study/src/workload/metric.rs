// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics: the figures that runs of a workload have, and what they are read from.

use std::{fmt, ops::Deref, str::FromStr};

use arrayvec::ArrayString;
use bpfassay_protocol::{
    Operation,
    job::{Better, WORK},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of a metric: lower-case letters, digits and `-`. Of a fixed size, so that it can be
/// part of small keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "ArrayString<24>")]
#[schemars(with = "ArrayString<24>")]
pub struct MetricName(ArrayString<24>);

/// Why a text is no name of a metric.
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

/// A figure that runs of a workload have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// Name, unique in the workload.
    pub name: MetricName,
    /// Unit: `1/s`.
    pub unit: String,
    /// Which values are better.
    pub better: Better,
    /// The operation whose bytes it is the rate of.
    pub operation: Option<Operation>,
    /// The bandwidth that it is the time per call of.
    pub calls_of: Option<MetricName>,
}

impl Metric {
    pub(super) fn new(name: &str, unit: &str, better: Better) -> Self {
        // The names of this crate are shorter than a name may be.
        Self { name: name.parse().unwrap_or_default(), unit: unit.to_owned(), better, operation: None, calls_of: None }
    }

    /// The time per call of the phases of the bandwidth `name`, where the workload times its calls:
    /// `write-call`; the trimmed mean.
    #[must_use]
    pub fn of_calls(name: MetricName) -> Self {
        Self { calls_of: Some(name), ..Self::new(&format!("{name}-call"), "ns/call", Better::Lower) }
    }

    /// The rate of the bytes of `operation`.
    pub(super) fn bandwidth(name: &str, operation: Operation) -> Self {
        Self { operation: Some(operation), ..Self::new(name, "MiB/s", Better::Higher) }
    }

    /// Whether it is a bandwidth, or the work as a whole: what bytes belong to.
    #[must_use]
    pub fn has_accuracy(&self) -> bool {
        self.operation.is_some() || &*self.name == WORK
    }

    /// The metric of the work as a whole.
    pub(super) fn work(unit: &str, better: Better) -> Self {
        Self::new(WORK, unit, better)
    }
}

/// What a workload reports of one timed phase of one repetition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseReport {
    /// The operation that moves its data.
    pub operation: Operation,
    /// Name of the phase, and of its metric.
    pub name: MetricName,
    /// Index of the test in the run, from 0.
    pub test: u32,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Bandwidth in MiB/s.
    pub bandwidth: Option<f64>,
    /// First open to last close, in seconds.
    pub total_s: Option<f64>,
    /// Bytes moved; `None` where the summary's rounded figures do not settle the number.
    pub bytes: Option<u64>,
}

impl PhaseReport {
    /// The metric that its bandwidth is a value of.
    #[must_use]
    pub fn metric(&self) -> Metric {
        Metric::bandwidth(&self.name, self.operation)
    }
}

/// The outcome of a run, as far as metrics follow from it.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// What the workload printed or wrote as its summary: untrusted.
    pub summary: &'a str,
    /// Nanoseconds from before the workload was started until it had ended; `None` where the clock
    /// went back.
    pub elapsed_ns: Option<u64>,
    /// Nanoseconds of these in which the guest had something to do; `None` where that is not known.
    pub busy_ns: Option<u64>,
}

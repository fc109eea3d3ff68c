// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outcome of sequential sampling (`--until`).

use bpfassay_study::{MetricName, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Number of boots for one target, workload and file system, and why sampling stopped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sampled {
    /// The target.
    pub target: Target,
    /// The workload case.
    pub case: String,
    /// Identifier of the file system.
    pub file_system: String,
    /// Number of boots; while sampling continues, the number at the next look.
    pub boots: u32,
    /// The largest allowed number of boots.
    pub most: u32,
    /// Why sampling stopped; `None` while it continues.
    pub end: Option<SamplingEnd>,
    /// The overhead with the widest interval at the last look.
    pub widest: Option<Widest>,
}

/// Why sampling stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SamplingEnd {
    /// Every interval is narrow enough.
    NarrowEnough,
    /// The largest number of boots is reached, and some interval is wider.
    MostBoots,
    /// The first boots measured no overhead, so more boots would not help.
    NothingMeasured,
}

/// The overhead with the widest interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Widest {
    /// The cell.
    pub cell: String,
    /// Name of the metric.
    pub metric: MetricName,
    /// Upper bound / estimate − 1: 0.005 for 0.5 %.
    pub within: f64,
}

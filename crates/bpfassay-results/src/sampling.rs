// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outcome of sequential sampling (`--until`).

use bpfassay_study::{MetricName, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many boots of one target, workload and file system there were, and why no more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sampled {
    /// The target.
    pub target: Target,
    /// The workload case.
    pub case: String,
    /// Identifier of the file system.
    pub file_system: String,
    /// Boots that were needed; while it goes on, those of the next look.
    pub boots: u32,
    /// The most that there may be.
    pub most: u32,
    /// Why it stopped; `None`: it goes on.
    pub end: Option<SamplingEnd>,
    /// The overhead with the widest interval at the last look.
    pub widest: Option<Widest>,
}

/// Why sampling stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SamplingEnd {
    /// Every interval is as narrow as asked for.
    NarrowEnough,
    /// There may be no more boots, and some interval is wider.
    MostBoots,
    /// No overhead was measured in the first boots: there is nothing to wait for.
    NothingMeasured,
}

/// The overhead with the widest interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Widest {
    /// The cell.
    pub cell: String,
    /// Name of its metric.
    pub metric: MetricName,
    /// Upper bound / estimate − 1: 0.005 for 0.5 %.
    pub within: f64,
}

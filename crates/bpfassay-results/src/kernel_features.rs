// SPDX-License-Identifier: MIT OR Apache-2.0
//! What works, breaks and differs on each target.

use bpfassay_protocol::{
    ProbeConfiguration,
    feature::{FeatureKind, Support},
};
use bpfassay_study::{ExpectedFeature, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Figure;

/// What works, breaks and differs: one column per target, one row per probe configuration and per
/// feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelFeatures {
    /// The targets, in the order of the study.
    pub targets: Vec<Target>,
    /// The probe configurations, the baseline not among them, in the order of the study.
    pub configurations: Vec<ConfigurationRow>,
    /// Every feature that was tried on some target, in the order in which they were tried.
    pub features: Vec<FeatureRow>,
}

/// One probe configuration on each target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigurationRow {
    /// The configuration.
    pub probe: ProbeConfiguration,
    /// One for each of [`KernelFeatures::targets`], in their order.
    pub cells: Vec<ConfigurationCell>,
}

/// One probe configuration on one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigurationCell {
    /// The outcome of trying it.
    pub verdict: FeatureVerdict,
    /// Why it does not work, or why nothing is known, in one line.
    pub reason: Option<String>,
    /// Reads and writes, and what the tracer counted of them.
    pub counted: Figure<Counted>,
    /// Its programs as the kernel holds them.
    pub programs: Figure<ProgramFacts>,
}

/// Calls and bytes of a handful of reads and writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// Calls that the workload made.
    pub calls: u64,
    /// Calls that the tracer counted − calls made, phases where it counted too few and too many not
    /// set off against each other: the difference that is farthest from 0.
    pub call_error: i64,
    /// Bytes that the workload moved.
    pub bytes: u64,
    /// Bytes traced − bytes moved.
    pub byte_error: i64,
}

impl Counted {
    /// Whether every call and every byte was counted, in every phase.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.call_error == 0 && self.byte_error == 0 && self.calls > 0
    }
}

/// The programs of one configuration, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramFacts {
    /// How many.
    pub programs: u32,
    /// Bytes of machine code.
    pub jited_bytes: u64,
    /// Instructions after the verifier's rewriting.
    pub instructions: u64,
    /// Instructions that the verifier looked at; `None` where the kernel does not report them
    /// (before 5.16).
    pub verified_instructions: Option<u64>,
    /// Nanoseconds to open and load them; `None` where no measured run loaded them: they stay
    /// loaded between runs.
    pub load_ns: Option<u64>,
    /// Nanoseconds to attach them.
    pub attach_ns: u64,
}

/// One feature on each target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FeatureRow {
    /// Its kind.
    pub kind: FeatureKind,
    /// Its name.
    pub name: String,
    /// One for each of [`KernelFeatures::targets`], in their order.
    pub cells: Vec<FeatureCell>,
}

/// One feature on one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FeatureCell {
    /// The outcome of trying it.
    pub support: Support,
    /// What was expected.
    pub expected: ExpectedFeature,
    /// How the two compare.
    pub verdict: FeatureVerdict,
}

/// The outcome of doing something, compared with what was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FeatureVerdict {
    /// It works, as expected.
    Works,
    /// It is refused, as expected.
    Refused,
    /// It works although a refusal was expected.
    UnexpectedSuccess,
    /// It is refused although it was expected to work, or in another way than expected.
    UnexpectedRefusal,
    /// It attaches and then counts wrongly.
    Miscounts,
    /// It works, and nothing was expected.
    NotEvaluatedSuccess,
    /// It is refused, and nothing was expected.
    NotEvaluatedRefusal,
    /// It was not tried.
    NotTried,
}

impl FeatureVerdict {
    /// Whether it is against expectation.
    #[must_use]
    pub const fn is_surprise(self) -> bool {
        matches!(self, Self::UnexpectedSuccess | Self::UnexpectedRefusal | Self::Miscounts)
    }
}

impl KernelFeatures {
    /// Everything that is against expectation: what, and where.
    pub fn surprises(&self) -> impl Iterator<Item = (String, &Target, FeatureVerdict)> {
        let configurations = self.configurations.iter().flat_map(|row| {
            row.cells.iter().zip(&self.targets).map(|(cell, target)| (row.probe.to_string(), target, cell.verdict))
        });
        let features = self.features.iter().flat_map(|row| {
            row.cells
                .iter()
                .zip(&self.targets)
                .map(|(cell, target)| (format!("{} {}", row.kind, row.name), target, cell.verdict))
        });
        configurations.chain(features).filter(|(_, _, verdict)| verdict.is_surprise())
    }
}

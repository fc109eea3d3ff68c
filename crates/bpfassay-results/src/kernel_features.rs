// SPDX-License-Identifier: MIT OR Apache-2.0
//! Features and probe configurations that work, fail or differ on each target.

use bpfassay_protocol::{
    ProbeConfiguration,
    kernel_feature::{FeatureKind, Support},
};
use bpfassay_study::{ExpectedFeature, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Figure;

/// Features and probe configurations that work, fail or differ: one column per target, one row per
/// configuration and per feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelFeatures {
    /// The targets, in the order of the study.
    pub targets: Vec<Target>,
    /// The probe configurations without the baseline, in the order of the study.
    pub configurations: Vec<ConfigurationRow>,
    /// Every feature that was tried on some target, in the order of the trials.
    pub features: Vec<FeatureRow>,
}

/// One probe configuration on each target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigurationRow {
    /// The configuration.
    pub probe: ProbeConfiguration,
    /// One cell for each of [`KernelFeatures::targets`], in that order.
    pub cells: Vec<ConfigurationCell>,
}

/// One probe configuration on one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigurationCell {
    /// The outcome of the trial.
    pub verdict: FeatureVerdict,
    /// One line that says why it does not work, or why nothing is known.
    pub reason: Option<String>,
    /// Reads and writes of the workload, and the tracer's counts.
    pub counted: Figure<Counted>,
    /// The configuration's programs as the kernel holds them.
    pub programs: Figure<ProgramFacts>,
}

/// Calls and bytes of a few reads and writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// Calls that the workload made.
    pub calls: u64,
    /// Calls that the tracer counted − calls made, as the difference farthest from 0. Phases with
    /// too few and too many counted calls do not cancel out.
    pub call_error: i64,
    /// Bytes that the workload moved.
    pub bytes: u64,
    /// Bytes traced − bytes moved, in the same way.
    pub byte_error: i64,
}

impl Counted {
    /// Whether the tracer counted every call and every byte in every phase.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.call_error == 0 && self.byte_error == 0 && self.calls > 0
    }
}

/// The programs of one configuration, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramFacts {
    /// Number of programs.
    pub programs: u32,
    /// Bytes of machine code.
    pub jited_bytes: u64,
    /// Instructions after the verifier's rewriting.
    pub instructions: u64,
    /// Instructions that the verifier processed. `None` before Linux 5.16, which does not report
    /// them.
    pub verified_instructions: Option<u64>,
    /// Nanoseconds for opening and loading the programs. `None` if no measured run loaded them,
    /// because programs stay loaded between runs.
    pub load_ns: Option<u64>,
    /// Nanoseconds for attaching the programs.
    pub attach_ns: u64,
}

/// One feature on each target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FeatureRow {
    /// Kind of the feature.
    pub kind: FeatureKind,
    /// Name of the feature.
    pub name: String,
    /// One cell for each of [`KernelFeatures::targets`], in that order.
    pub cells: Vec<FeatureCell>,
}

/// One feature on one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FeatureCell {
    /// The outcome of the trial.
    pub support: Support,
    /// The expected outcome.
    pub expected: ExpectedFeature,
    /// The comparison of the two.
    pub verdict: FeatureVerdict,
}

/// The outcome of a trial, compared with the expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FeatureVerdict {
    /// It works, as expected.
    Works,
    /// It is refused, as expected.
    Refused,
    /// It works although a refusal was expected.
    UnexpectedSuccess,
    /// It is refused, but should work or be refused differently.
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
    /// Whether the verdict contradicts the expectation.
    #[must_use]
    pub const fn is_surprise(self) -> bool {
        matches!(self, Self::UnexpectedSuccess | Self::UnexpectedRefusal | Self::Miscounts)
    }
}

impl KernelFeatures {
    /// Lists everything that contradicts an expectation: name, target and verdict.
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

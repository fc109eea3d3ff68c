// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts on the gates of a study.

use std::fmt;

use bpfassay_stats::{Verdict, gate_decision::GateEvidence};
use bpfassay_study::{Budget, MetricName, Share};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The verdict on one demand of a gate for one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateResult {
    /// Index of the gate in the study, from 0.
    pub gate: u32,
    /// The demand.
    pub demand: Demand,
    /// The cell.
    pub cell: String,
    /// Name of the metric; `None` if the demand is about the whole cell.
    pub metric: Option<MetricName>,
    /// The verdict. An inconclusive one is not a pass.
    pub verdict: Verdict,
    /// The figure behind the verdict, with its unit, or the reason for no verdict.
    pub found: String,
    /// The p-values of a statistical verdict, before their correction over the matrix.
    pub evidence: Option<GateEvidence>,
}

/// The demand of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Demand {
    /// The relative overhead is at most 1 + `limit`.
    Overhead {
        /// The limit.
        limit: Share,
    },
    /// The direct cost is at most `limit` in every run.
    DirectCost {
        /// The limit, in instructions per call.
        limit: u64,
    },
    /// The relative error over IOR's own interval is at most 1 + `limit`, in either direction.
    RelativeError {
        /// The limit.
        limit: Share,
    },
    /// The absolute byte error is at most `limit` in every interval of every run.
    ByteError {
        /// The limit, in bytes.
        limit: u64,
    },
    /// A figure of the tool's programs is at most the limit.
    Budget {
        /// The figure and its limit.
        budget: Budget,
    },
    /// Every tracer attaches, or is refused, as expected.
    Attach,
    /// The tool under test has no finding that the gate denies.
    Findings,
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overhead { limit } => write!(f, "overhead at most {limit}"),
            Self::DirectCost { limit } => write!(f, "direct cost at most {limit} instructions/call"),
            Self::RelativeError { limit } => write!(f, "relative error within {limit}"),
            Self::ByteError { limit: 0 } => f.write_str("byte error 0"),
            Self::ByteError { limit } => write!(f, "byte error at most {limit}"),
            Self::Budget { budget: Budget { figure, limit } } => write!(f, "at most {limit} {}", figure.words()),
            Self::Attach => f.write_str("attach as expected"),
            Self::Findings => f.write_str("no finding that is denied"),
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts on the gates of a study.

use std::fmt;

use bpfassay_stats::{Verdict, gate::GateEvidence};
use bpfassay_study::{MetricName, Share};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The verdict on one demand of a gate for one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateResult {
    /// Which of the study's gates, from 0.
    pub gate: u32,
    /// What is demanded.
    pub demand: Demand,
    /// The cell.
    pub cell: String,
    /// Name of the metric; `None` where the demand is of the cell as a whole.
    pub metric: Option<MetricName>,
    /// The verdict. Inconclusive is no pass.
    pub verdict: Verdict,
    /// What was found, as text with its unit: what the verdict rests on, or why there is none.
    pub found: String,
    /// The p-values, where the verdict is one of statistics; before their correction over the
    /// matrix.
    pub evidence: Option<GateEvidence>,
}

/// The demand of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Demand {
    /// A relative overhead of 1 + this at most.
    Overhead {
        /// The limit.
        limit: Share,
    },
    /// A direct cost of that many instructions per call at most, in every run.
    DirectCost {
        /// The limit, in instructions per call.
        limit: u64,
    },
    /// A relative error over IOR's own interval of 1 + this at most, either way.
    RelativeError {
        /// The limit.
        limit: Share,
    },
    /// A byte error of this absolute value at most, in every interval of every run.
    ByteError {
        /// The limit, in bytes.
        limit: u64,
    },
    /// Everything attaches, or is refused, as expected.
    Attach,
    /// No denied finding is found of a tool under test.
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
            Self::Attach => f.write_str("attach as expected"),
            Self::Findings => f.write_str("no finding that is denied"),
        }
    }
}

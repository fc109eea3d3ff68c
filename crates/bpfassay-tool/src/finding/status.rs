// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a fault was found in a tool.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most lines of evidence for one finding; what there is beyond is counted.
const MAX_EVIDENCE: usize = 16;

/// What came of looking for one kind of fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum FindingStatus {
    /// It is there.
    Found {
        /// What shows it, with its numbers, one line each.
        evidence: Vec<String>,
    },
    /// It was looked for and is not there.
    Clear,
    /// It could not be looked for.
    NotEvaluated {
        /// Why.
        reason: String,
    },
}

impl FindingStatus {
    pub(super) fn not_evaluated(reason: impl Into<String>) -> Self {
        Self::NotEvaluated { reason: reason.into() }
    }

    /// Found where there is evidence, else clear.
    pub(super) fn from_evidence(mut evidence: Vec<String>) -> Self {
        if evidence.is_empty() {
            return Self::Clear;
        }
        if evidence.len() > MAX_EVIDENCE {
            let more = evidence.len() - MAX_EVIDENCE;
            evidence.truncate(MAX_EVIDENCE);
            evidence.push(format!("and {more} more"));
        }
        Self::Found { evidence }
    }

    /// Found where `measured` is above `limit`; `evidence` describes it.
    pub(super) fn of_limit<N: PartialOrd>(measured: Option<N>, limit: N, evidence: impl FnOnce(N) -> String) -> Self {
        match measured {
            None => Self::not_evaluated("not measured"),
            Some(measured) if measured <= limit => Self::Clear,
            Some(measured) => Self::from_evidence(vec![evidence(measured)]),
        }
    }
}

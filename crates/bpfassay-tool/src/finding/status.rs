// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a fault was found in a tool.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::certainty::{Certainty, EvidenceLine};

/// Largest number of evidence lines per finding. The remaining ones are only counted.
const MAX_EVIDENCE: usize = 16;

/// Whether one kind of fault was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum FindingStatus {
    /// The fault was found.
    Found {
        /// Evidence with numbers, one line per element.
        evidence: Vec<String>,
        /// Certainty of the finding; `None` in results of versions that did not record it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        certainty: Option<Certainty>,
    },
    /// The fault was looked for, and is absent.
    Clear,
    /// The fault could not be looked for.
    NotEvaluated {
        /// The reason.
        reason: String,
    },
}

impl FindingStatus {
    pub(super) fn not_evaluated(reason: impl Into<String>) -> Self {
        Self::NotEvaluated { reason: reason.into() }
    }

    /// Whether the fault was found.
    #[must_use]
    pub const fn is_found(&self) -> bool {
        matches!(self, Self::Found { .. })
    }

    /// Creates a finding from `evidence` with this certainty.
    #[must_use]
    pub fn found(certainty: Certainty, evidence: Vec<String>) -> Self {
        Self::Found { evidence, certainty: Some(certainty) }
    }

    /// Found if there is evidence, all with this certainty. Otherwise clear.
    pub(super) fn from_evidence(certainty: Certainty, evidence: Vec<String>) -> Self {
        Self::from_lines(certainty.lines(evidence))
    }

    /// Found if there is evidence. Otherwise clear.
    pub(super) fn from_lines(lines: Vec<EvidenceLine>) -> Self {
        let Some(certainty) = lines.iter().map(|line| line.certainty).max() else { return Self::Clear };
        let more = lines.len().saturating_sub(MAX_EVIDENCE);
        let mut evidence: Vec<String> = lines.into_iter().take(MAX_EVIDENCE).map(|line| line.text).collect();
        if more > 0 {
            evidence.push(format!("and {more} more"));
        }
        Self::found(certainty, evidence)
    }

    /// Not evaluated instead of clear, if there is a sentence about what `lacks`.
    pub(super) fn unless_lacking(self, lacks: Option<String>) -> Self {
        match lacks {
            Some(lacks) if self == Self::Clear => Self::not_evaluated(lacks),
            _ => self,
        }
    }

    /// Found if `measured` exceeds `limit`. The function `evidence` describes the value.
    pub(super) fn of_limit<N: PartialOrd>(measured: Option<N>, limit: N, evidence: impl FnOnce(N) -> String) -> Self {
        match measured {
            None => Self::not_evaluated("not measured"),
            Some(measured) if measured <= limit => Self::Clear,
            Some(measured) => Self::from_evidence(Certainty::Bounded, vec![evidence(measured)]),
        }
    }
}

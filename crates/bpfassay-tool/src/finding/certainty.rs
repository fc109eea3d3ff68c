// SPDX-License-Identifier: MIT OR Apache-2.0
//! The certainty of a finding.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::finding_comparison::NumberComparison;

/// How certain it is that a tool has a fault. The most certain evidence decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// The difference fits this finding and nothing else that was considered. But the truth is not
    /// exact, though its uncertainty is smaller than the difference, or the tool rounds.
    Fitting,
    /// The tool, its loader or the kernel states it: an error, a counter or a type.
    Reported,
    /// An amount is outside the bounds of the truth, or a measured value exceeds its limit. No
    /// cause is claimed.
    Bounded,
    /// The fault itself was observed, or the exact difference matches this finding and nothing else
    /// that was considered.
    Proven,
}

impl Certainty {
    /// All certainties, from the least certain on.
    pub const ALL: [Self; 4] = [Self::Fitting, Self::Reported, Self::Bounded, Self::Proven];

    /// The name used in files and output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fitting => "fitting",
            Self::Reported => "reported",
            Self::Bounded => "bounded",
            Self::Proven => "proven",
        }
    }

    /// Certainty of an amount that matches a finding, given the bounds in `one`.
    pub(super) const fn of_amount(one: &NumberComparison<'_>) -> Self {
        if one.at_least == one.at_most && one.slack == 0 { Self::Proven } else { Self::Fitting }
    }
}

/// A line of evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EvidenceLine {
    /// The certainty that this line gives the finding.
    pub(super) certainty: Certainty,
    pub(super) text: String,
}

impl Certainty {
    /// Creates a line of evidence with this certainty.
    pub(super) fn line(self, text: impl Into<String>) -> EvidenceLine {
        EvidenceLine { certainty: self, text: text.into() }
    }

    /// Creates several lines of evidence with this certainty.
    pub(super) fn lines(self, texts: impl IntoIterator<Item = String>) -> Vec<EvidenceLine> {
        texts.into_iter().map(|text| self.line(text)).collect()
    }
}

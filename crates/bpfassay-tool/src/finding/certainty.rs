// SPDX-License-Identifier: MIT OR Apache-2.0
//! How sure a finding is, and on what evidence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::comparison::Comparison;

/// How sure it is that a tool has a fault: by the surest of its evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// What is missing, or too much, fits what the finding names and nothing else that was looked
    /// at; the truth is uncertain by less than that, but not certain to the unit, or the tool
    /// rounds.
    Fitting,
    /// The tool, its loader or the kernel states it: an error, a counter, a type.
    Reported,
    /// An amount is outside the bounds of the truth, or a measured value above its limit. Why is
    /// not claimed.
    Bounded,
    /// It was seen itself, or an amount is to the unit that of what the finding names, and of
    /// nothing else that was looked at.
    Proven,
}

impl Certainty {
    /// Every one, from the least sure on.
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

    /// Of an amount that is what a finding names, as far as can be known of `one`.
    pub(super) const fn of_amount(one: &Comparison<'_>) -> Self {
        if one.at_least == one.at_most && one.slack == 0 { Self::Proven } else { Self::Fitting }
    }
}

/// A line of evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// The certainty of the finding with it.
    pub(super) certainty: Certainty,
    pub(super) text: String,
}

impl Certainty {
    /// Evidence that is as sure as this.
    pub(super) fn line(self, text: impl Into<String>) -> Line {
        Line { certainty: self, text: text.into() }
    }

    /// The same of several lines.
    pub(super) fn lines(self, texts: impl IntoIterator<Item = String>) -> Vec<Line> {
        texts.into_iter().map(|text| self.line(text)).collect()
    }
}

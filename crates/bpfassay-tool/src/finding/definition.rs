// SPDX-License-Identifier: MIT OR Apache-2.0
//! The definition of one kind of finding: each file of `kind/` has one.

use super::{
    certainty::Line,
    evidence::{Evidence, KernelFacts, Limits},
    figures::{Explain, Explained, Tally},
    source::Sources,
    status::FindingStatus,
};
use crate::{Readings, Report};

/// One kind of finding.
pub(super) struct Definition {
    /// The name used in files and output.
    pub(super) name: &'static str,
    /// The fault of the tool, and where it cannot be evaluated.
    pub(super) explanation: &'static str,
    /// The sources that it is evaluated from: it is clear only where each of them answered.
    pub(super) sources: Sources,
    /// When it is clear, for docs/explanation/finding-evidence.md.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares the page with it"))]
    pub(super) clear: &'static str,
    /// Explains what a figure and the ground truth differ by, as far as this finding does. Kinds
    /// explain in the order of
    /// [`super::Kind::ALL`], each what those before it left open.
    pub(super) explain: Option<Explain>,
    /// Evaluates it, after all figures are explained.
    pub(super) evaluate: fn(&Known<'_>) -> FindingStatus,
}

/// The facts that a kind is evaluated from.
pub(super) struct Known<'a> {
    /// The evidence of the run.
    pub(super) evidence: &'a Evidence<'a>,
    /// The limits of what is accepted.
    pub(super) limits: &'a Limits,
    /// The explained figures, or why there are none.
    pub(super) figures: &'a Result<Explained, &'static str>,
    /// The sources of this kind.
    pub(super) sources: &'a Sources,
    /// The place of this kind's tally among them.
    pub(super) place: usize,
}

impl Known<'_> {
    /// What the tool reports by its tool file, and what it reported; or why there is nothing of it.
    ///
    /// # Errors
    /// That reason.
    pub(super) fn reported(&self) -> Result<(&Report, &Readings), &'static str> {
        self.evidence.reported()
    }

    /// The status by the figures that this kind explains, and by `more`, which is evidence beside
    /// theirs. It is clear only where each figure that may have it could be compared. `otherwise`
    /// is why it is not evaluated where there is none.
    pub(super) fn of_figures(&self, otherwise: &str, more: Vec<Line>) -> FindingStatus {
        let figures = match self.figures {
            Ok(figures) => figures,
            Err(reason) => return FindingStatus::not_evaluated(*reason),
        };
        let tally = figures.tallies.get(self.place).cloned().unwrap_or_default();
        let evidence = [tally.evidence, more].concat();
        let obstacle = figures.obstacle(self.sources).or(tally.open.as_deref());
        match (evidence.is_empty(), obstacle) {
            (true, Some(obstacle)) => FindingStatus::not_evaluated(obstacle),
            (true, None) if !tally.evaluated => FindingStatus::not_evaluated(otherwise),
            _ => FindingStatus::from_lines(evidence),
        }
    }

    /// The status by the figures that this kind explains, and by `more`, which is evidence enough.
    pub(super) fn with_more(&self, more: Vec<Line>) -> FindingStatus {
        FindingStatus::from_lines([more, self.tally().map(|tally| tally.evidence).unwrap_or_default()].concat())
    }

    /// What the figures have of this kind; or why nothing of them is known.
    pub(super) fn tally(&self) -> Result<Tally, &'static str> {
        let figures = self.figures.as_ref().map_err(|reason| *reason)?;
        Ok(figures.tallies.get(self.place).cloned().unwrap_or_default())
    }

    /// A fact that the kernel or the guest has of the tool.
    pub(super) fn fact<T>(&self, pick: impl FnOnce(&KernelFacts) -> Option<T>) -> Option<T> {
        self.evidence.kernel.and_then(pick)
    }
}

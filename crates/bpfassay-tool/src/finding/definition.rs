// SPDX-License-Identifier: MIT OR Apache-2.0
//! The definition of a kind of finding. Each file in `kind/` has one.

use super::{
    certainty::EvidenceLine,
    evidence::{Evidence, KernelFacts, ValueLimits},
    finding_figures::{EvidenceTally, Explain, Explained},
    finding_source::KindSources,
    status::FindingStatus,
};
use crate::{file::Report, readings::Readings};

/// One kind of finding.
pub(super) struct Definition {
    /// Name in files and output.
    pub(super) name: &'static str,
    /// The fault of the tool, and when it cannot be evaluated.
    pub(super) explanation: &'static str,
    /// Sources of the evaluation. The kind can be clear only if all sources answered.
    pub(super) sources: KindSources,
    /// When the kind is clear, for docs/explanation/finding-evidence.md.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares the page with it"))]
    pub(super) clear: &'static str,
    /// Explains differences between a figure and the ground truth, as far as this kind does. Kinds
    /// explain in the order of [`super::Kind::ALL`], each what earlier kinds left open.
    pub(super) explain: Option<Explain>,
    /// Evaluates the kind after all figures are explained.
    pub(super) evaluate: fn(&KindInputs<'_>) -> FindingStatus,
}

/// The inputs of a kind's evaluation.
pub(super) struct KindInputs<'a> {
    /// The evidence of the run.
    pub(super) evidence: &'a Evidence<'a>,
    /// The limits of what is accepted.
    pub(super) limits: &'a ValueLimits,
    /// The explained figures, or why there are none.
    pub(super) figures: &'a Result<Explained, &'static str>,
    /// The sources of this kind.
    pub(super) sources: &'a KindSources,
    /// Index of this kind's tally in `figures`.
    pub(super) place: usize,
}

impl KindInputs<'_> {
    /// Returns the tool file's report and the readings.
    ///
    /// # Errors
    /// The reason why they are missing.
    pub(super) fn reported(&self) -> Result<(&Report, &Readings), &'static str> {
        self.evidence.reported()
    }

    /// The status from the figures that this kind explains, and from the additional evidence
    /// `more`. It is clear only if every relevant figure could be compared. `otherwise` is the
    /// reason if no figure was relevant.
    pub(super) fn of_figures(&self, otherwise: &str, more: Vec<EvidenceLine>) -> FindingStatus {
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

    /// The status from the figures that this kind explains, and from `more`, which suffices alone.
    pub(super) fn with_more(&self, more: Vec<EvidenceLine>) -> FindingStatus {
        FindingStatus::from_lines([more, self.tally().map(|tally| tally.evidence).unwrap_or_default()].concat())
    }

    /// The figures' evidence for this kind, or why there is none.
    pub(super) fn tally(&self) -> Result<EvidenceTally, &'static str> {
        let figures = self.figures.as_ref().map_err(|reason| *reason)?;
        Ok(figures.tallies.get(self.place).cloned().unwrap_or_default())
    }

    /// Picks a fact of the kernel or the guest about the tool.
    pub(super) fn fact<T>(&self, pick: impl FnOnce(&KernelFacts) -> Option<T>) -> Option<T> {
        self.evidence.kernel.and_then(pick)
    }
}

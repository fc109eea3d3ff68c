// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a tool: from its samples, ground truth, and what was seen of it in the
//! kernel, to named findings.
//!
//! Every kind is evaluated every time: found with evidence, clear, or not evaluated with the
//! reason. Nothing that could not be measured is clear. A kind of finding is a file of `kind/`.

mod absent;
mod aliases;
mod candidates;
mod certainty;
mod comparison;
mod course;
mod definition;
mod evidence;
mod figures;
mod flags;
mod kind;
mod left_out;
mod merged;
mod missed;
mod process;
mod source;
mod status;
mod truth;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::definition::Known;
pub use self::{
    certainty::Certainty,
    evidence::{Detach, Evidence, KernelFacts, Limits, Start},
    figures::{Compared, NotCompared, Values, compared, moved, not_compared, requested},
    kind::{Advice, Kind},
    status::FindingStatus,
    truth::{Process, Share, Truth},
};
use crate::Report;

/// One kind and whether it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FindingResult {
    /// The kind.
    pub kind: Kind,
    /// Whether it was found.
    #[serde(flatten)]
    pub status: FindingStatus,
}

/// Evaluates every kind, in the order of [`Kind::ALL`].
#[must_use]
pub fn evaluate(evidence: &Evidence<'_>, limits: &Limits) -> Vec<FindingResult> {
    let explain: Vec<_> = Kind::ALL.iter().map(|kind| kind.definition().explain).collect();
    let figures = figures::explain(evidence, &explain);
    let status = |(place, kind): (usize, &Kind)| {
        let definition = kind.definition();
        let known = Known { evidence, limits, figures: &figures, sources: &definition.sources, place };
        FindingResult { kind: *kind, status: (definition.evaluate)(&known) }
    };
    Kind::ALL.iter().enumerate().map(status).collect()
}

/// Clears nothing that a figure of `report` may show which no run compares: those of
/// `not_compared`.
pub fn leave_open(findings: &mut [FindingResult], report: &Report, not_compared: &[NotCompared]) {
    for finding in findings.iter_mut().filter(|finding| finding.status == FindingStatus::Clear) {
        let sources = &finding.kind.definition().sources;
        let is_of = |one: &&NotCompared| {
            report.figures.get(one.index).is_some_and(|figure| sources.compares(figure.unit, figure.whose))
        };
        if let Some(one) = not_compared.iter().find(is_of) {
            finding.status = FindingStatus::not_evaluated(format!("{}: {}", one.figure, one.reason));
        }
    }
}

#[cfg(test)]
mod tests;

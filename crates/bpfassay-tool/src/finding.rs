// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings about a tool, from its samples, the ground truth, and facts from the kernel.
//!
//! Every kind of finding is evaluated in every run. It is found with evidence, clear, or not
//! evaluated with the reason. Something that could not be measured is never clear. Each kind is a
//! file in `kind/`.

mod absent;
mod aliases;
mod candidates;
mod certainty;
mod course;
mod definition;
mod evidence;
mod finding_comparison;
mod finding_figures;
mod finding_source;
mod flags;
mod kind;
mod left_out;
mod merged;
mod missed;
mod process_identity;
mod process_key;
mod status;
mod truth;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::definition::KindInputs;
pub use self::{
    certainty::Certainty,
    evidence::{Detach, Evidence, FullMap, KernelFacts, Racy, Start, ValueLimits},
    finding_figures::{Compared, NotCompared, Values, compared, moved, not_compared, requested},
    kind::{Kind, KindAdvice, NO_SIGN},
    process_identity::ProcessNames,
    status::FindingStatus,
    truth::{CallShare, Truth},
};
use crate::file::Report;

/// The result for one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FindingResult {
    /// The kind.
    pub kind: Kind,
    /// Whether the fault was found.
    #[serde(flatten)]
    pub status: FindingStatus,
}

/// Evaluates every kind in the order of [`Kind::ALL`].
#[must_use]
pub fn evaluate(evidence: &Evidence<'_>, limits: &ValueLimits) -> Vec<FindingResult> {
    let explain: Vec<_> = Kind::ALL.iter().map(|kind| kind.definition().explain).collect();
    let figures = finding_figures::explain(evidence, &explain);
    let status = |(place, kind): (usize, &Kind)| {
        let definition = kind.definition();
        let known = KindInputs { evidence, limits, figures: &figures, sources: &definition.sources, place };
        FindingResult { kind: *kind, status: (definition.evaluate)(&known) }
    };
    Kind::ALL.iter().enumerate().map(status).collect()
}

/// Turns clear findings into not evaluated ones if a figure in `not_compared` could show them.
/// `report` is the tool file's report.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool needs a long time to end.

use crate::finding::{
    certainty::Certainty,
    definition::{Definition, KindInputs},
    evidence::Detach,
    finding_source::{KindSources, Source},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "slow-detach",
    explanation: "It took longer than the limit (5 s) to end, or had to be killed. Not evaluated where it was not measured.",
    sources: KindSources::Of(&[Source::DetachTime]),
    clear: "it took no longer than the limit",
    explain: None,
    evaluate,
};

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let limit = known.limits.detach_ns;
    let took = match known.fact(|facts| facts.detach.clone()) {
        Some(Detach::Killed(how)) => return FindingStatus::from_evidence(Certainty::Bounded, vec![how]),
        Some(Detach::After(took)) => Some(took),
        None => None,
    };
    FindingStatus::of_limit(took, limit, |took| format!("{took} ns to end; limit {limit} ns"))
}

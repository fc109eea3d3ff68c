// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool needs a long time to become ready.

use crate::finding::{
    definition::{Definition, KindInputs},
    finding_source::{KindSources, Source},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "slow-attach",
    explanation: "It took longer than the limit (10 s) until it was ready. Not evaluated where it was not measured.",
    sources: KindSources::Of(&[Source::AttachTime]),
    clear: "it took no longer than the limit",
    explain: None,
    evaluate,
};

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let limit = known.limits.attach_ns;
    let took = known.fact(|facts| facts.attach_ns);
    FindingStatus::of_limit(took, limit, |took| {
        format!("{took} ns by the clock of the guest until it was ready; limit {limit} ns")
    })
}

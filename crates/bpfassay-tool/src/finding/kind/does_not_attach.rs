// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool does not attach.

use bpfassay_protocol::tracer_messages::Step;

use super::does_not_load::{NO_SIGN, step_unknown};
use crate::finding::{
    certainty::Certainty,
    definition::{Definition, KindInputs},
    evidence::{Start, lines_of},
    finding_source::{KindSources, Source},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "does-not-attach",
    explanation: "It loaded and could not be attached. Not evaluated where it did not load, where its start was not observed, or where it never became ready and nothing shows which step failed, or whether any did.",
    sources: KindSources::Of(&[Source::Start]),
    clear: "it became ready",
    explain: None,
    evaluate,
};

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    match known.evidence.start {
        None => FindingStatus::not_evaluated("its start was not observed"),
        Some(Start::Ready | Start::Running { attached: true, .. }) => FindingStatus::Clear,
        Some(Start::Running { .. }) => FindingStatus::not_evaluated(NO_SIGN),
        Some(Start::Refused(refusal)) if refusal.step == Step::Attach => {
            FindingStatus::from_evidence(Certainty::Reported, lines_of(refusal))
        }
        Some(Start::Refused(_)) => FindingStatus::not_evaluated("it did not load"),
        Some(Start::NotReady { message }) => FindingStatus::not_evaluated(step_unknown(message)),
    }
}

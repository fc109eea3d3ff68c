// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool does not attach.

use bpfassay_protocol::tracer::Step;

use super::does_not_load::step_unknown;
use crate::finding::{
    certainty::Certainty,
    definition::{Definition, Known},
    evidence::{Start, lines_of},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "does-not-attach",
    explanation: "It loaded and could not be attached. Not evaluated where it did not load, or where it never became ready and nothing shows which step failed.",
    explain: None,
    evaluate,
};

fn evaluate(known: &Known<'_>) -> FindingStatus {
    match known.evidence.start {
        None => FindingStatus::not_evaluated("its start was not observed"),
        Some(Start::Ready) => FindingStatus::Clear,
        Some(Start::Refused(refusal)) if refusal.step == Step::Attach => {
            FindingStatus::from_evidence(Certainty::Reported, lines_of(refusal))
        }
        Some(Start::Refused(_)) => FindingStatus::not_evaluated("it did not load"),
        Some(Start::NotReady { message }) => FindingStatus::not_evaluated(step_unknown(message)),
    }
}

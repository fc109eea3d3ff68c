// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool does not become ready, and why is not known.

use crate::finding::{
    certainty::Certainty,
    definition::{Definition, Known},
    evidence::Start,
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "does-not-start",
    explanation: "It never became ready, and nothing shows whether it failed to load or to attach, or for another reason. Not evaluated where its start was not observed.",
    explain: None,
    evaluate,
};

fn evaluate(known: &Known<'_>) -> FindingStatus {
    match known.evidence.start {
        None => FindingStatus::not_evaluated("its start was not observed"),
        Some(Start::Ready | Start::Refused(_)) => FindingStatus::Clear,
        Some(Start::NotReady { message }) => {
            FindingStatus::from_evidence(Certainty::Bounded, vec![format!("it never became ready: {message}")])
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool does not load.

use bpfassay_protocol::tracer::Step;

use crate::finding::{
    definition::{Definition, Known},
    evidence::{Start, lines_of},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "does-not-load",
    explanation: "The kernel, or the tool's loader, refused one of its objects, maps or programs. Not evaluated where its start was not observed.",
    explain: None,
    evaluate,
};

fn evaluate(known: &Known<'_>) -> FindingStatus {
    match known.evidence.start {
        None => FindingStatus::not_evaluated("its start was not observed"),
        Some(Start::Refused(refusal)) if refusal.step != Step::Attach => {
            FindingStatus::from_evidence(lines_of(refusal))
        }
        Some(Start::Ready | Start::Refused(_)) => FindingStatus::Clear,
        Some(Start::NotReady { .. }) => {
            FindingStatus::not_evaluated("it did not become ready, and whether it had loaded is not known")
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool does not load.

use bpfassay_protocol::tracer_messages::Step;

use crate::finding::{
    definition::{Definition, KindInputs},
    evidence::{Start, lines_of},
    finding_source::{KindSources, Source},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "does-not-load",
    explanation: "The kernel, or the tool's loader, refused one of its objects, maps or programs. Not evaluated where its start was not observed, or where it never became ready and nothing shows which step failed, or whether any did.",
    sources: KindSources::Of(&[Source::Start]),
    clear: "it became ready, or loaded and was refused later",
    explain: None,
    evaluate,
};

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    match known.evidence.start {
        None => FindingStatus::not_evaluated("its start was not observed"),
        Some(Start::Refused(refusal)) if refusal.step != Step::Attach => FindingStatus::from_lines(lines_of(refusal)),
        Some(Start::Ready | Start::Refused(_) | Start::Running { loaded: true, .. } | Start::Unattached { .. }) => {
            FindingStatus::Clear
        }
        Some(Start::Running { .. }) => FindingStatus::not_evaluated(NO_SIGN),
        Some(Start::NotReady(refusal)) => FindingStatus::not_evaluated(step_unknown(&refusal.message)),
    }
}

/// Reason for not evaluating the start of a running tool that says nothing of loading or attaching.
pub const NO_SIGN: &str = "neither the kernel nor any figure shows it";

/// Reason for not evaluating loading or attaching if a tool never became ready. `message` is what
/// was observed.
pub(super) fn step_unknown(message: &str) -> String {
    format!("it never became ready, and nothing shows which step failed: {message}")
}

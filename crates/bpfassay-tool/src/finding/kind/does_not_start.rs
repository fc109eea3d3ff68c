// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool does not become ready, for an unknown reason.

use super::does_not_load::NO_SIGN;
use crate::{
    finding::{
        certainty::Certainty,
        definition::{Definition, KindInputs},
        evidence::{Start, capabilities},
        finding_source::{KindSources, Source},
        status::FindingStatus,
    },
    service::missing,
};

pub(super) const FINDING: Definition = Definition {
    name: "does-not-start",
    explanation: "It never became ready, and nothing shows whether it failed to load or to attach, or for another reason. Not evaluated where its start was not observed, or nothing shows whether it is ready.",
    sources: KindSources::Of(&[Source::Start]),
    clear: "it became ready, or the step that failed is known",
    explain: None,
    evaluate,
};

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    match known.evidence.start {
        None => FindingStatus::not_evaluated("its start was not observed"),
        Some(Start::Ready | Start::Refused(_) | Start::Running { loaded: true, .. } | Start::Unattached { .. }) => {
            FindingStatus::Clear
        }
        Some(Start::Running { .. }) => FindingStatus::not_evaluated(NO_SIGN),
        Some(Start::NotReady(refusal)) => {
            let message = &refusal.message;
            let mut lines = vec![Certainty::Bounded.line(format!("it never became ready: {message}"))];
            // This line comes first because a reader sees it first.
            if let Some((service, line)) = missing(message) {
                let text = format!("it asks for {}, which is not there: `{line}`", service.name());
                lines.insert(0, Certainty::Reported.line(text));
            }
            lines.extend(capabilities(refusal));
            FindingStatus::from_lines(lines)
        }
    }
}

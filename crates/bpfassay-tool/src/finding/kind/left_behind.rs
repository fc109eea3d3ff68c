// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool leaves something behind.

use crate::finding::{
    certainty::Certainty,
    definition::{Definition, KindInputs},
    finding_source::{KindSources, Source},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "left-behind",
    explanation: "BPF programs, links or maps that were not there before are there after it ended, or the guest is otherwise not as before: a mount gone, a process left, the clock moved. Not evaluated where that was not listed, or not all of it.",
    sources: KindSources::Of(&[Source::Left]),
    clear: "nothing of it is left, and the guest is as before",
    explain: None,
    evaluate,
};

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let Some(left) = known.fact(|facts| facts.left_behind.clone()) else {
        return FindingStatus::not_evaluated("what is in the kernel was not listed before and after");
    };
    FindingStatus::from_evidence(Certainty::Proven, left).unless_lacking(known.fact(|facts| facts.left_lacks.clone()))
}

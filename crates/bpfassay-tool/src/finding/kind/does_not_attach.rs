// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool does not attach.

use bpfassay_protocol::{loaded_object::UnattachedProgram, tracer_messages::Step};

use super::does_not_load::{NO_SIGN, step_unknown};
use crate::finding::{
    definition::{Definition, KindInputs},
    evidence::{Start, lines_of},
    finding_source::{KindSources, Source},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "does-not-attach",
    explanation: "It loaded and could not be attached. Not evaluated where it did not load, where only a loader of its own can attach a program of it, where its start was not observed, or where it never became ready and nothing shows which step failed, or whether any did.",
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
        Some(Start::Unattached { programs }) => FindingStatus::not_evaluated(only_a_loader(programs)),
        Some(Start::Refused(refusal)) if refusal.step == Step::Attach => FindingStatus::from_lines(lines_of(refusal)),
        Some(Start::Refused(_)) => FindingStatus::not_evaluated("it did not load"),
        Some(Start::NotReady(refusal)) => FindingStatus::not_evaluated(step_unknown(&refusal.message)),
    }
}

/// Reason for not evaluating an object with `programs` whose sections name no target. It names the
/// first of them.
fn only_a_loader(programs: &[UnattachedProgram]) -> String {
    const NAMED: usize = 4;
    let shown = programs.iter().take(NAMED).map(|one| format!("`{}` (section {})", one.program, one.section));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = match programs.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("only a loader can attach {shown}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_left_to_a_loader_are_named_up_to_a_number() {
        let programs = |count: usize| {
            let one = |index| UnattachedProgram { program: format!("p{index}"), section: "xdp".to_owned() };
            (0..count).map(one).collect::<Vec<_>>()
        };
        assert_eq!(only_a_loader(&programs(1)), "only a loader can attach `p0` (section xdp)");
        let many = only_a_loader(&programs(7));
        assert!(many.ends_with("`p3` (section xdp) and 3 more"), "{many}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool counts more than happened.

use crate::finding::{
    certainty::Certainty,
    definition::Definition,
    finding_comparison::{NumberComparison, shown},
    finding_figures::{Differences, EvidenceTally, NONE},
    finding_source::EVERY_FIGURE,
    left_out::besides,
};

pub(super) const FINDING: Definition = Definition {
    name: "counts-too-high",
    explanation: "It counted more than happened, also more than what others did while it reported would add. Where that is exactly the calls that failed, or those of variants, which the tool file leaves out, these are named. Not evaluated where one of its figures could not be compared, as those of the whole system where the ground truth does not cover it.",
    sources: EVERY_FIGURE,
    clear: "no figure has more than happened",
    explain: Some(explain),
    evaluate: |known| known.of_figures(NONE, Vec::new()),
};

fn explain(tally: &mut EvidenceTally, differences: &mut Differences<'_>) {
    tally.evaluated |= !differences.comparisons.is_empty();
    let excessive = differences.comparisons.iter().filter(|one| one.is_open() && one.reported > one.at_most);
    let (figure, truth) = (differences.figure, differences.truth);
    let text = |one: &NumberComparison<'_>| shown(figure, one) + &besides(figure, one, truth);
    tally.evidence.extend(excessive.map(|one| Certainty::Bounded.line(text(one))));
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first call of each key is not counted.

use crate::finding::{
    candidates::Candidates,
    certainty::Certainty,
    definition::Definition,
    finding_comparison::shown,
    finding_figures::{Differences, EvidenceTally},
    finding_source::EVERY_FIGURE,
};

pub(super) const FINDING: Definition = Definition {
    name: "first-touch-lost",
    explanation: "Of every operation that a subject did, exactly one call is missing, or the bytes of one call of average size, and nothing else that is known of is as much: what the first call of a new key does is lost. Not evaluated where one of its figures could not be compared, or no subject did more than one call of an operation.",
    sources: EVERY_FIGURE,
    clear: "no figure lacks as much as the first calls",
    explain: Some(explain),
    evaluate: |known| known.of_figures("nothing that it reports was done more than once", Vec::new()),
};

fn explain(tally: &mut EvidenceTally, differences: &mut Differences<'_>) {
    for one in &mut differences.comparisons {
        tally.evaluated |= one.subject.shares.iter().any(|share| share.calls > 1);
        if one.is_too_low()
            && let Some(lost) = Candidates::of(differences.figure, one).first_calls()
        {
            let text = format!("{}: {lost} less, as much as the first calls", shown(differences.figure, one));
            // Any other call of that size looks the same.
            tally.evidence.push(Certainty::Fitting.line(text));
            one.explained = true;
        }
    }
}

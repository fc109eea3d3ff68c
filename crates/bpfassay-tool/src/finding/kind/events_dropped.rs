// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool loses events.

use crate::finding::{
    definition::{Definition, Known},
    figures::{Differences, NONE, Tally, shown},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "events-dropped",
    explanation: "The tool itself reports that it lost events, or it counted less than happened and none of the findings before explains it.",
    explain: Some(explain),
    evaluate,
};

fn explain(tally: &mut Tally, differences: &mut Differences<'_>) {
    tally.evaluated |= !differences.comparisons.is_empty();
    let lacking = differences.comparisons.iter().filter(|one| one.deficit().is_some());
    tally.evidence.extend(lacking.map(|one| shown(differences.figure, one)));
}

fn evaluate(known: &Known<'_>) -> FindingStatus {
    let lost = known.evidence.readings.and_then(|readings| readings.lost).filter(|&lost| lost > 0);
    let lost = lost.map(|lost| format!("it reports that it lost {lost} events"));
    known.of_all_figures(NONE, lost.into_iter().collect())
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool reports that it lost events.

use crate::{
    Unit,
    finding::{
        certainty::Certainty,
        comparison::shown,
        definition::{Definition, Known},
        figures::{Differences, Tally},
        status::FindingStatus,
    },
};

pub(super) const FINDING: Definition = Definition {
    name: "events-dropped",
    explanation: "The tool itself reports that it lost events; figures that are too low by no more than these are shown with it. Not evaluated where its output has no place for lost events: what is missing then is counts-too-low.",
    explain: Some(explain),
    evaluate,
};

/// What lost events may be the reason for.
fn explain(tally: &mut Tally, differences: &mut Differences<'_>) {
    let Some(lost) = differences.readings.lost.filter(|&lost| lost > 0) else { return };
    for one in differences.comparisons.iter_mut().filter(|one| one.is_too_low()) {
        let is_bytes = matches!(differences.figure.unit, Unit::BytesReturned | Unit::BytesRequested);
        if is_bytes || one.at_least <= one.reported.saturating_add(lost) {
            tally.evidence.push(Certainty::Fitting.line(shown(differences.figure, one)));
            one.explained = true;
        }
    }
}

fn evaluate(known: &Known<'_>) -> FindingStatus {
    match known.reported().map(|(_, readings)| readings.lost) {
        Err(reason) => FindingStatus::not_evaluated(reason),
        Ok(None) => FindingStatus::not_evaluated("its output has no place for lost events"),
        Ok(Some(0)) => FindingStatus::Clear,
        Ok(Some(lost)) => {
            known.with_more(vec![Certainty::Reported.line(format!("it reports that it lost {lost} events"))])
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool reports that it lost events.

use crate::{
    file::CountedUnit,
    finding::{
        certainty::Certainty,
        definition::{Definition, KindInputs},
        finding_comparison::{NumberComparison, shown},
        finding_figures::{Differences, EvidenceTally},
        finding_source::{KindSources, Source},
        status::FindingStatus,
        truth::CallShare,
    },
};

pub(super) const FINDING: Definition = Definition {
    name: "events-dropped",
    explanation: "The tool itself reports that it lost events; figures that are too low by no more than these are shown with it; what more is missing is counts-too-low. Not evaluated where its output has no place for lost events (what is missing is counts-too-low then), it reported nothing, or not all of that could be read.",
    sources: KindSources::Of(&[Source::Figures, Source::Reports, Source::Lost]),
    clear: "it reports that it lost no event",
    explain: Some(explain),
    evaluate,
};

/// Explains what lost events can cause: as many missing calls of one figure, or the bytes of as
/// many calls.
fn explain(tally: &mut EvidenceTally, differences: &mut Differences<'_>) {
    let Some(lost) = differences.readings.lost.filter(|&lost| lost > 0) else { return };
    let unit = differences.figure.unit;
    let mut left = lost;
    for one in differences.comparisons.iter_mut().filter(|one| one.is_too_low()) {
        let (events, amount) = match unit {
            CountedUnit::BytesReturned | CountedUnit::BytesRequested => bytes(one, unit, left),
            CountedUnit::Calls | CountedUnit::Errors | CountedUnit::Successes => {
                (one.missing().min(left), one.missing().min(left))
            }
        };
        left = left.saturating_sub(events);
        let line = Certainty::Fitting.line(shown(differences.figure, one));
        one.account(amount, "is in events that it lost");
        if one.explained {
            tally.evidence.push(line);
        }
    }
}

/// The smallest number of lost events, up to `events`, that explains what `one` lacks, and their
/// bytes. Assumes the mean size of calls per process, mount and operation.
fn bytes(one: &NumberComparison<'_>, unit: CountedUnit, events: u64) -> (u64, u64) {
    let mean = |share: &&CallShare| Some((share.amount(unit)?.div_ceil(share.calls.max(1)), share.calls));
    let mut means: Vec<(u64, u64)> = one.subject.shares.iter().filter_map(mean).collect();
    means.sort_unstable_by(|a, b| b.cmp(a));
    let (mut used, mut sum) = (0_u64, 0_u64);
    for (mean, calls) in means.into_iter().filter(|(mean, _)| *mean > 0) {
        let wanted = one.missing().saturating_sub(sum).div_ceil(mean);
        let taken = wanted.min(calls).min(events.saturating_sub(used));
        used = used.saturating_add(taken);
        sum = sum.saturating_add(taken.saturating_mul(mean));
    }
    (used, sum)
}

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let readings = match known.reported() {
        Ok((_, readings)) => readings,
        Err(reason) => return FindingStatus::not_evaluated(reason),
    };
    match (readings.lost, readings.unheard()) {
        (None, _) => FindingStatus::not_evaluated("its output has no place for lost events"),
        (Some(0), Some(reason)) => FindingStatus::not_evaluated(reason),
        (Some(0), None) => FindingStatus::Clear,
        (Some(lost), _) => {
            known.with_more(vec![Certainty::Reported.line(format!("it reports that it lost {lost} events"))])
        }
    }
}

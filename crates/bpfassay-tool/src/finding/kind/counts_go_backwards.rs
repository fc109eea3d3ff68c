// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cumulative figure becomes smaller.

use crate::{
    finding::{
        certainty::Certainty,
        course::{NEEDS_TWO, of, reports_all, series},
        definition::{Definition, KindInputs},
        finding_figures::{Differences, EvidenceTally},
        finding_source::{KindSources, Source},
        status::FindingStatus,
    },
    readings::{ReportedSample, Vanished, shown},
};

pub(super) const FINDING: Definition = Definition {
    name: "counts-go-backwards",
    explanation: "A figure that counts cumulatively became smaller. Not evaluated without two reports of such a figure, or where not all that was reported could be read.",
    sources: KindSources::Of(&[Source::Figures, Source::Reports]),
    clear: "no cumulative figure is less than in the report before",
    explain: Some(explain),
    evaluate,
};

/// Finds pairs of consecutive reports in which the value decreases.
fn falls<'r>(samples: &[&'r ReportedSample]) -> impl Iterator<Item = (&'r ReportedSample, &'r ReportedSample)> {
    let pairs = samples.iter().copied().zip(samples.iter().copied().skip(1));
    pairs.filter(|(earlier, later)| later.value.cast_signed() < earlier.value.cast_signed())
}

/// Explains a missing amount up to the sum of the decreases.
fn explain(_: &mut EvidenceTally, differences: &mut Differences<'_>) {
    for ((figure, subject), samples) in series(differences.report, differences.readings) {
        // Decreases through vanished keys are explained by `counts_vanish`.
        let is_vanished = |one: &Vanished| one.figure == figure && one.subject == *subject;
        if figure != differences.index || differences.readings.vanished.iter().any(is_vanished) {
            continue;
        }
        let amount = falls(&samples).fold(0, |sum: u64, (earlier, later)| {
            sum.saturating_add(earlier.value.cast_signed().abs_diff(later.value.cast_signed()))
        });
        for one in &mut differences.comparisons {
            if subject.as_ref().is_none_or(|name| one.subject.has_name(name)) {
                one.account(amount, "went backwards");
            }
        }
    }
}

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let (report, readings) = match known.reported() {
        Ok(reported) => reported,
        Err(reason) => return FindingStatus::not_evaluated(reason),
    };
    let (mut evidence, mut evaluated) = (Vec::new(), false);
    for ((figure, subject), samples) in series(report, readings) {
        evaluated |= samples.len() > 1;
        if let Some((earlier, later)) = falls(&samples).next() {
            evidence.push(format!(
                "{}: {} at {} ns, {} at {} ns",
                of(report, figure, subject.as_deref()),
                shown(earlier.value),
                earlier.at_ns,
                shown(later.value),
                later.at_ns
            ));
        }
    }
    match readings.incomplete() {
        // A missing part of a page or map reduces its sums.
        Some(reason) if evidence.is_empty() || readings.cut && reports_all(report) => {
            FindingStatus::not_evaluated(reason)
        }
        None if !evaluated => FindingStatus::not_evaluated(NEEDS_TWO),
        _ => FindingStatus::from_evidence(Certainty::Proven, evidence),
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cumulative figure becomes smaller.

use crate::{
    Sample,
    finding::{
        certainty::Certainty,
        course::{NEEDS_TWO, of, series},
        definition::{Definition, Known},
        figures::{Differences, Tally},
        status::FindingStatus,
    },
};

pub(super) const FINDING: Definition = Definition {
    name: "counts-go-backwards",
    explanation: "A figure that counts cumulatively became smaller. Not evaluated without two reports of such a figure.",
    explain: Some(explain),
    evaluate,
};

/// The first two reports of which the later one has less.
fn fall<'r>(samples: &[&'r Sample]) -> Option<(&'r Sample, &'r Sample)> {
    let pairs = samples.iter().copied().zip(samples.iter().copied().skip(1));
    pairs.into_iter().find(|(earlier, later)| later.value < earlier.value)
}

/// What is missing of a figure that fell is explained.
fn explain(_: &mut Tally, differences: &mut Differences<'_>) {
    for ((figure, subject), samples) in series(differences.report, differences.readings) {
        if figure != differences.index || fall(&samples).is_none() {
            continue;
        }
        for one in differences.comparisons.iter_mut().filter(|one| one.is_too_low()) {
            one.explained |= subject.as_ref().is_none_or(|name| one.subject.has_name(name));
        }
    }
}

fn evaluate(known: &Known<'_>) -> FindingStatus {
    let (report, readings) = match known.reported() {
        Ok(reported) => reported,
        Err(reason) => return FindingStatus::not_evaluated(reason),
    };
    let (mut evidence, mut evaluated) = (Vec::new(), false);
    for ((figure, subject), samples) in series(report, readings) {
        evaluated |= samples.len() > 1;
        if let Some((earlier, later)) = fall(&samples) {
            evidence.push(format!(
                "{}: {} at {} ns, {} at {} ns",
                of(report, figure, subject.as_deref()),
                earlier.value,
                earlier.at_ns,
                later.value,
                later.at_ns
            ));
        }
    }
    if evaluated {
        FindingStatus::from_evidence(Certainty::Proven, evidence)
    } else {
        FindingStatus::not_evaluated(NEEDS_TWO)
    }
}

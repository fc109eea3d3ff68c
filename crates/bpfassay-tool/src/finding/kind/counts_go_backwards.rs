// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cumulative figure becomes smaller.

use crate::finding::{
    course::{NEEDS_TWO, of, series},
    definition::{Definition, Known},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "counts-go-backwards",
    explanation: "A figure that counts cumulatively became smaller. Not evaluated without two reports of such a figure.",
    explain: None,
    evaluate,
};

fn evaluate(known: &Known<'_>) -> FindingStatus {
    let (report, readings) = match known.reported() {
        Ok(reported) => reported,
        Err(reason) => return FindingStatus::not_evaluated(reason),
    };
    let (mut evidence, mut evaluated) = (Vec::new(), false);
    for ((figure, subject), samples) in series(report, readings) {
        evaluated |= samples.len() > 1;
        let fall = samples.iter().zip(samples.iter().skip(1)).find(|(earlier, later)| later.value < earlier.value);
        if let Some((earlier, later)) = fall {
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
    if evaluated { FindingStatus::from_evidence(evidence) } else { FindingStatus::not_evaluated(NEEDS_TWO) }
}

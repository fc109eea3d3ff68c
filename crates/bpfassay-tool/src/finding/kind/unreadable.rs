// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of the tool cannot be read.

use crate::finding::{
    certainty::Certainty,
    definition::{Definition, Known},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "unreadable",
    explanation: "Its output could not be read as its tool file describes. Not evaluated where it reports no figures.",
    explain: None,
    evaluate,
};

fn evaluate(known: &Known<'_>) -> FindingStatus {
    match known.evidence.readings {
        None => FindingStatus::not_evaluated(known.reported().err().unwrap_or("it reports no figures")),
        Some(readings) if readings.unread == 0 => FindingStatus::Clear,
        Some(readings) => {
            let first = readings.first_unread.as_deref().unwrap_or_default();
            FindingStatus::from_evidence(Certainty::Proven, vec![format!("{} times; first: {first}", readings.unread)])
        }
    }
}

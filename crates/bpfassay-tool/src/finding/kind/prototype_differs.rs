// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program does not have the prototype of the function that it traces.

use crate::finding::{
    certainty::Certainty,
    definition::{Definition, Known},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "prototype-differs",
    explanation: "A program of it reads an argument that the traced function does not have, takes an argument for the return value, or a pointer for a number, by the kernel's BTF. Not evaluated where there is no object to look at, or no BTF of the kernel.",
    explain: None,
    evaluate,
};

fn evaluate(known: &Known<'_>) -> FindingStatus {
    match known.evidence.prototypes {
        Some(lines) => FindingStatus::from_evidence(Certainty::Reported, lines.to_vec()),
        None => FindingStatus::not_evaluated("its programs were not compared with the kernel's BTF"),
    }
}

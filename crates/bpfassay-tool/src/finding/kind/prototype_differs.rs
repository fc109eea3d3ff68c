// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program does not have the prototype of the function that it traces.

use bpfassay_protocol::prototype::Checked;

use crate::finding::{
    certainty::Certainty,
    definition::{Definition, Known},
    flags,
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "prototype-differs",
    explanation: "A program of it reads an argument that the traced function does not have, takes an argument for the return value, or a pointer for a number, by the kernel's BTF. Not evaluated where there is no object to look at, or no BTF of the kernel.",
    explain: None,
    evaluate,
};

fn evaluate(known: &Known<'_>) -> FindingStatus {
    let Some(checked) = known.evidence.prototypes else { return FindingStatus::not_evaluated(NOT_COMPARED) };
    let of_one = |one: &Checked| {
        let program = flags::shown(one);
        one.differs.iter().map(|line| format!("{program}: {line}")).collect::<Vec<_>>()
    };
    let lines: Vec<String> = checked.iter().flat_map(of_one).collect();
    // What is found is found; that there is nothing, only a look at everything can show.
    if lines.is_empty() && checked.iter().any(|one| one.unchecked.is_some()) {
        return FindingStatus::not_evaluated(NOT_COMPARED);
    }
    FindingStatus::from_evidence(Certainty::Reported, lines)
}

const NOT_COMPARED: &str = "its programs were not compared with the kernel's BTF";

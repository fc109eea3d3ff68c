// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program does not match the prototype of the function that it traces.

use bpfassay_protocol::checked_prototype::Checked;

use crate::finding::{
    certainty::Certainty,
    definition::{Definition, KindInputs},
    evidence::Start,
    finding_source::{KindSources, Source},
    flags,
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "prototype-differs",
    explanation: "A program of it reads an argument that the traced function does not have, takes an argument for the return value, or a pointer for a number, by the kernel's BTF. Not evaluated where there is no object to look at, or no BTF of the kernel, or a program could not be followed.",
    sources: KindSources::Of(&[Source::Prototypes]),
    clear: "each of its programs was compared, and fits",
    explain: None,
    evaluate,
};

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let Some(checked) = known.evidence.prototypes else { return FindingStatus::not_evaluated(NOT_COMPARED) };
    let is_loaded = matches!(
        known.evidence.start,
        Some(Start::Ready | Start::Running { loaded: true, .. } | Start::Unattached { .. })
    );
    let is_real = |one: &Checked, line: &str| !(is_loaded && would_be_refused(one, line));
    let of_one = |one: &Checked| {
        let program = flags::shown(one);
        let real = one.differs.iter().filter(|line| is_real(one, line));
        real.map(|line| format!("{program}: {line}")).collect::<Vec<_>>()
    };
    let lines: Vec<String> = checked.iter().flat_map(of_one).collect();
    if lines.is_empty() && checked.iter().any(|one| !one.differs.is_empty()) {
        return FindingStatus::not_evaluated(DEAD);
    }
    // A difference counts even if some programs were not checked. Its absence needs a check of all.
    if lines.is_empty() && (checked.is_empty() || checked.iter().any(|one| one.unchecked.is_some())) {
        return FindingStatus::not_evaluated(NOT_COMPARED);
    }
    FindingStatus::from_evidence(Certainty::Reported, lines)
}

/// Whether the verifier refuses a program that does what `line` says. Programs of fentry, fexit and
/// fmod_ret cannot read an argument that the function does not have (`btf_ctx_access` in
/// kernel/bpf/btf.c). A loaded program can have such a read only in a branch that the verifier
/// removed, because CO-RE, a constant or the kernel version decides it.
fn would_be_refused(one: &Checked, line: &str) -> bool {
    !one.section.starts_with("kprobe") && line.starts_with("reads argument ")
}

const DEAD: &str =
    "a branch of its programs does not fit the kernel's BTF, and the kernel, which accepted them, does not execute it";

const NOT_COMPARED: &str = "its programs were not compared with the kernel's BTF";

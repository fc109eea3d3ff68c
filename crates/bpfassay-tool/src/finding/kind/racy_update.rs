// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program updates a shared map, and loses what other CPUs add.

use crate::finding::{
    certainty::Certainty,
    course::{is_map, its_map},
    definition::{Definition, KindInputs},
    finding_comparison::shown,
    finding_figures::{Differences, EvidenceTally},
    finding_source::{KindSources, Source},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "racy-update",
    explanation: "A program loads a number from a map of all CPUs, changes or compares it, and stores it without an atomic instruction or a spin lock: what another CPU stores in the meantime is lost. On several CPUs, a figure of that map that is too low proves it. Not evaluated where the kernel does not show the instructions, or they could not be followed.",
    sources: KindSources::Of(&[Source::Instructions]),
    clear: "each of its programs was followed, and updates maps of all CPUs atomically",
    explain: Some(explain),
    evaluate,
};

/// Explains what a figure of a map with a racy update lacks on several CPUs.
fn explain(tally: &mut EvidenceTally, differences: &mut Differences<'_>) {
    let Some(kernel) = differences.kernel.filter(|kernel| kernel.cpus > 1) else { return };
    let Some(map) = its_map(differences.report, differences.index) else { return };
    let Some(racy) = kernel.racy.iter().flatten().find(|racy| is_map(&racy.map, &map)) else { return };
    for one in differences.comparisons.iter_mut().filter(|one| one.is_too_low()) {
        let seed = kernel.seed.map(|seed| format!(" with seed {seed}")).unwrap_or_default();
        let text = format!("{} on {} CPUs{seed}: {racy}", shown(differences.figure, one), kernel.cpus);
        tally.evidence.push(Certainty::Proven.line(text));
        one.explained = true;
    }
}

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let Some(racy) = known.fact(|facts| facts.racy.clone()) else {
        return FindingStatus::not_evaluated("its programs were not followed");
    };
    let proven = known.tally().map(|tally| tally.evidence).unwrap_or_default();
    let fitting = Certainty::Fitting.lines(racy.iter().map(ToString::to_string));
    let status = FindingStatus::from_lines(if proven.is_empty() { fitting } else { proven });
    status.unless_lacking(known.fact(|facts| facts.racy_lacks.clone()))
}

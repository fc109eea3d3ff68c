// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool counts less than happened, and why is not known.

use crate::finding::{
    certainty::Certainty,
    comparison::shown,
    definition::Definition,
    figures::{Differences, NONE, Tally},
    parts,
};

pub(super) const FINDING: Definition = Definition {
    name: "counts-too-low",
    explanation: "It counted less than happened, also less than what it may leave out, and none of the findings before explains it. Where what is missing is exactly what one operation, mount, cgroup, process or phase of the workload did, that is shown. Not evaluated without a figure that can be compared.",
    explain: Some(explain),
    evaluate: |known| known.of_all_figures(NONE, Vec::new()),
};

fn explain(tally: &mut Tally, differences: &mut Differences<'_>) {
    tally.evaluated |= !differences.comparisons.is_empty();
    for one in differences.comparisons.iter().filter(|one| one.is_too_low()) {
        let parts = parts::missing(differences.figure, one);
        let parts = if parts.is_empty() { String::new() } else { format!("; as much as {}", parts.join(", or ")) };
        tally.evidence.push(Certainty::Bounded.line(shown(differences.figure, one) + &parts));
    }
}

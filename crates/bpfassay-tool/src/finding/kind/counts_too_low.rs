// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool counts less than happened, and why is not known.

use std::collections::BTreeMap;

use crate::{
    ReportedFigure, Whose,
    finding::{
        definition::Definition,
        figures::{Comparison, Differences, NONE, Tally, shown},
    },
};

pub(super) const FINDING: Definition = Definition {
    name: "counts-too-low",
    explanation: "It counted less than happened, also less than what it may leave out, and none of the findings before explains it. Where what is missing is exactly what one operation, mount, cgroup or process did, that is shown. Not evaluated without a figure that can be compared.",
    explain: Some(explain),
    evaluate: |known| known.of_all_figures(NONE, Vec::new()),
};

fn explain(tally: &mut Tally, differences: &mut Differences<'_>) {
    tally.evaluated |= !differences.comparisons.is_empty();
    for one in differences.comparisons.iter().filter(|one| one.is_too_low()) {
        let parts = parts(differences.figure, one);
        let parts = if parts.is_empty() { String::new() } else { format!("; as much as {}", parts.join(", or ")) };
        tally.evidence.push(shown(differences.figure, one) + &parts);
    }
}

/// Most parts that are named.
const MOST_PARTS: usize = 4;

/// Parts of what happened that are exactly what is missing: the path that the tool may not see. Of a subject that is one part only, this says
/// nothing.
fn parts(figure: &ReportedFigure, one: &Comparison<'_>) -> Vec<String> {
    let mut parts: BTreeMap<String, u64> = BTreeMap::new();
    for share in &one.subject.shares {
        let Some(amount) = share.amount(figure.unit) else { continue };
        let of = |whose: Whose| share.names(whose).first().map(|name| format!("{} {name}", whose.name()));
        let named = [Whose::Mount, Whose::Cgroup, Whose::Process].into_iter().filter_map(of);
        for part in named.chain([format!("operation {}", share.operation)]) {
            let sum = parts.entry(part).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    let is_missing = |(_, amount): &(String, u64)| *amount > 0 && *amount < one.expected && one.lacks(*amount);
    parts.into_iter().filter(is_missing).map(|(part, _)| part).take(MOST_PARTS).collect()
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool reports a cgroup or mount under an unknown name.

use crate::{
    file::Whose,
    finding::{
        aliases::unknown,
        certainty::Certainty,
        definition::Definition,
        finding_comparison::NumberComparison,
        finding_figures::{Differences, EvidenceTally},
        finding_source::KindSources,
    },
};

pub(super) const FINDING: Definition = Definition {
    name: "subject-unknown",
    explanation: "It reports of a cgroup or mount that did nothing under this name: with the one that is missing instead, where a figure of it is the same; its other figures are then compared with that one. Not evaluated without a figure by cgroup or mount, where one of these could not be compared, where the ground truth does not cover the whole system, or where a name may be that of others on the machine.",
    sources: KindSources::Figures(|_, whose| matches!(whose, Whose::Cgroup | Whose::Mount)),
    clear: "each name that it reports is of a cgroup or mount that did something",
    explain: Some(explain),
    evaluate: |known| known.of_figures("no figure by cgroup or mount that can be compared", Vec::new()),
};

fn explain(tally: &mut EvidenceTally, differences: &mut Differences<'_>) {
    let Differences { figure, truth, comparisons, grown, .. } = differences;
    // The truth knows only processes of the workload.
    if !matches!(figure.whose, Whose::Cgroup | Whose::Mount) || !truth.is_whole_system {
        return;
    }
    tally.evaluated = true;
    for (name, value) in unknown(figure, grown, truth) {
        let whose = figure.whose.name();
        let is_also = |one: &NumberComparison<'_>| one.also.iter().any(|also| also == name);
        let is_same = |one: &NumberComparison<'_>| one.reported == 0 && one.lacks(value);
        let found = comparisons.iter().position(is_also).or_else(|| comparisons.iter().position(is_same));
        let (certainty, same) = match found.map(|at| &mut comparisons[at]) {
            Some(one) if is_also(one) && !one.may_be(value) => {
                let text = format!("taken for {whose} {}, of which another figure is the same", one.subject.shown());
                (Certainty::Fitting, text)
            }
            Some(one) => {
                one.explained = true;
                // The equal amount can be a coincidence if no other figure shows an alias.
                let certainty = if is_also(one) { Certainty::of_amount(one) } else { Certainty::Fitting };
                (certainty, format!("the same as really of {whose} {}", one.subject.shown()))
            }
            // Other mount namespaces can have mounts with this name.
            None if truth.is_shared => {
                let open = || format!("`{name}`, which it reports of, may be a {whose} of others on this machine");
                tally.open.get_or_insert_with(open);
                continue;
            }
            None => (Certainty::Bounded, format!("no {whose} did anything under this name")),
        };
        let text = format!("`{}` of {whose} {name}: {value}; {same}", figure.name());
        tally.evidence.push(certainty.line(text));
    }
}

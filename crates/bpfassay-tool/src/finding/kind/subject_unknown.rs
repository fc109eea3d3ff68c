// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool reports a cgroup or a mount that is not known by this name.

use crate::{
    Whose,
    finding::{
        definition::Definition,
        figures::{Comparison, Differences, Tally},
    },
};

pub(super) const FINDING: Definition = Definition {
    name: "subject-unknown",
    explanation: "It reports of a cgroup or mount that did nothing under this name: with the one that is missing instead, where its figure is the same. Not evaluated without a figure by cgroup or mount, or where the ground truth does not cover the whole system.",
    explain: Some(explain),
    evaluate: |known| known.of_all_figures("no figure by cgroup or mount that can be compared", Vec::new()),
};

fn explain(tally: &mut Tally, differences: &mut Differences<'_>) {
    let Differences { figure, truth, comparisons, grown, .. } = differences;
    // Of processes, the truth knows the workload's alone.
    if !matches!(figure.whose, Whose::Cgroup | Whose::Mount) || !truth.is_whole_system {
        return;
    }
    tally.evaluated = true;
    // Without a name are pipes, sockets and other things that are on no mount.
    let named = grown.iter().filter_map(|(name, &value)| Some((name.as_ref().filter(|name| !name.is_empty())?, value)));
    for (name, value) in named.filter(|(name, value)| *value > 0 && !truth.knows(figure.whose, name)) {
        let whose = figure.whose.name();
        let is_same = |one: &&mut Comparison<'_>| one.reported == 0 && one.lacks(value);
        let same = match comparisons.iter_mut().find(is_same) {
            Some(one) => {
                one.explained = true;
                format!("the same as really of {whose} {}", one.subject.shown())
            }
            None => format!("no {whose} did anything under this name"),
        };
        tally.evidence.push(format!("`{}` of {whose} {name}: {value}; {same}", figure.value));
    }
}

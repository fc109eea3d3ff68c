// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures in which one cgroup or mount has what several did.

use super::{
    certainty::Certainty,
    figures::{Comparison, Differences, Tally},
};
use crate::Whose;

/// Explains the figures by cgroup, or by mount: one of them has what several moved, the others have nothing.
pub(super) fn explain(tally: &mut Tally, differences: &mut Differences<'_>, whose: Whose) {
    let Differences { figure, comparisons, grown, .. } = differences;
    if figure.whose != whose {
        return;
    }
    if comparisons.iter().filter(|one| one.expected > 0).count() < 2 {
        return;
    }
    tally.evaluated = true;
    // What rounding down can make nothing of is not missing.
    let is_missing = |one: &Comparison<'_>| one.expected > one.slack && one.reported == 0;
    let all_missing: Vec<&Comparison<'_>> = comparisons.iter().filter(|one| is_missing(one)).collect();
    let sum = |of: fn(&Comparison<'_>) -> u64| all_missing.iter().fold(0_u64, |sum, one| sum.saturating_add(of(one)));
    let (missing, at_least, at_most) = (sum(|one| one.expected), sum(|one| one.at_least), sum(|one| one.at_most));
    let slack = comparisons.iter().map(|one| one.slack).max().unwrap_or(0);
    // What may all be missing is merged with nothing.
    if at_least <= slack {
        return;
    }
    for (subject, &value) in grown.iter() {
        let Some(name) = subject else { continue };
        let of_name = comparisons.iter().find(|one| one.subject.names.contains(name));
        let (own, own_least, own_most) = of_name.map_or((0, 0, 0), |one| (one.expected, one.at_least, one.at_most));
        let parts = all_missing.len() + usize::from(own > 0);
        // More than its own, and as much as all together.
        let is_sum = value > own_most
            && own_least.saturating_add(at_least) <= value.saturating_add(slack)
            && value <= own_most.saturating_add(at_most);
        // Of a single one it would be another name, not a sum.
        if parts < 2 || !is_sum {
            continue;
        }
        let others: Vec<&str> = all_missing.iter().map(|one| one.subject.shown()).collect();
        let is_certain = slack == 0 && at_least == at_most && own_least == own_most;
        let certainty = if is_certain { Certainty::Proven } else { Certainty::Fitting };
        tally.evidence.push(certainty.line(format!(
            "`{}` of {} {name}: {value}, which is {own} of its own and {missing} of {}",
            figure.name(),
            figure.whose.name(),
            others.join(", ")
        )));
        let merged = subject.clone();
        for one in comparisons.iter_mut() {
            one.explained |= is_missing(one) || merged.as_ref().is_some_and(|name| one.subject.names.contains(name));
        }
        grown.remove(&merged);
        return;
    }
}

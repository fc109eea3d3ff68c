// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures that count several cgroups or mounts as one.

use super::{
    aliases::is_last_component,
    certainty::{Certainty, EvidenceLine},
    finding_comparison::{GrowthBySubject, NumberComparison},
    finding_figures::{Differences, EvidenceTally},
};
use crate::file::{ReportedFigure, Whose};

/// Explains figures by cgroup or mount in which one subject has the amounts of several subjects,
/// and the other subjects have nothing.
pub(super) fn explain(tally: &mut EvidenceTally, differences: &mut Differences<'_>, whose: Whose) {
    let Differences { figure, comparisons, grown, .. } = differences;
    if figure.whose != whose {
        return;
    }
    if comparisons.iter().filter(|one| one.expected > 0).count() < 2 {
        return;
    }
    tally.evaluated = true;
    let slack = comparisons.iter().map(|one| one.slack).max().unwrap_or(0);
    while let Some((subject, evidence, explained)) = one_of_several(figure, comparisons, grown, slack) {
        tally.evidence.push(evidence);
        for (one, explained) in comparisons.iter_mut().zip(explained) {
            one.explained |= explained;
        }
        grown.remove(&Some(subject));
    }
}

/// Finds a name under which several subjects are reported. Returns the name, the evidence, and
/// whether it explains each of `comparisons`.
fn one_of_several(
    figure: &ReportedFigure,
    comparisons: &[NumberComparison<'_>],
    grown: &GrowthBySubject,
    slack: u64,
) -> Option<(String, EvidenceLine, Vec<bool>)> {
    // An amount that rounding can hide is not missing.
    let is_missing = |one: &NumberComparison<'_>| !one.explained && one.expected > one.slack && one.reported == 0;
    // A subject that a correct tool can leave out is missing for that reason, or because it is
    // merged.
    let certain = |one: &NumberComparison<'_>| is_missing(one) && one.at_least > one.slack;
    let groups: [&dyn Fn(&NumberComparison<'_>) -> bool; 2] = [&certain, &is_missing];
    // An alias of one subject is not the name of several.
    let is_taken = |name: &str| comparisons.iter().any(|one| one.also.iter().any(|also| also == name));
    let names = || {
        grown.iter().filter_map(|(name, &value)| Some((name.as_deref()?, value))).filter(|(name, _)| !is_taken(name))
    };
    // Mounts can be missing for other reasons. Mounts with the same last path component are tried
    // before all missing mounts.
    let sum_of = |name: &str, value: u64, belongs: &dyn Fn(&NumberComparison<'_>) -> bool| {
        let missing: Vec<&NumberComparison<'_>> = comparisons.iter().filter(|one| belongs(one)).collect();
        let evidence = sum(figure, &missing, comparisons, (name, value), slack)?;
        let is_of = |one: &NumberComparison<'_>| belongs(one) || one.subject.has_name(name);
        Some((name.to_owned(), evidence, comparisons.iter().map(is_of).collect()))
    };
    let by_name = groups.iter().find_map(|group| {
        names().find_map(|(name, value)| {
            sum_of(name, value, &|one| group(one) && is_last_component(name, one.subject.shown()))
        })
    });
    by_name.or_else(|| groups.iter().find_map(|group| names().find_map(|(name, value)| sum_of(name, value, group))))
}

/// Returns evidence if the amounts of all of `all_missing` were also reported under `name`.
fn sum(
    figure: &ReportedFigure,
    all_missing: &[&NumberComparison<'_>],
    comparisons: &[NumberComparison<'_>],
    (name, value): (&str, u64),
    slack: u64,
) -> Option<EvidenceLine> {
    let sum =
        |of: fn(&NumberComparison<'_>) -> u64| all_missing.iter().fold(0_u64, |sum, one| sum.saturating_add(of(one)));
    let (missing, at_least, at_most) = (sum(|one| one.expected), sum(|one| one.at_least), sum(|one| one.at_most));
    // Subjects that can all be left out prove no merge.
    if at_least <= slack {
        return None;
    }
    let of_name = comparisons.iter().find(|one| one.subject.has_name(name));
    let (own, own_least, own_most) = of_name.map_or((0, 0, 0), |one| (one.expected, one.at_least, one.at_most));
    let parts = all_missing.len() + usize::from(own > 0);
    // The value exceeds the subject's own amount, and equals the sum of all. A single missing
    // subject would be an alias, and not a sum.
    let is_sum = parts >= 2
        && value > own_most
        && own_least.saturating_add(at_least) <= value.saturating_add(slack)
        && value <= own_most.saturating_add(at_most);
    let others: Vec<&str> = all_missing.iter().map(|one| one.subject.shown()).collect();
    is_sum.then(|| {
        let is_certain = slack == 0 && at_least == at_most && own_least == own_most;
        let certainty = if is_certain { Certainty::Proven } else { Certainty::Fitting };
        certainty.line(format!(
            "`{}` of {} {name}: {value}, which is {own} of its own and {missing} of {}",
            figure.name(),
            figure.whose.name(),
            others.join(", ")
        ))
    })
}

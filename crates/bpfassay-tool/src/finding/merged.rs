// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures in which one cgroup or mount has what several did.

use super::{
    aliases::is_last_component,
    certainty::{Certainty, Line},
    comparison::{Comparison, Grown},
    figures::{Differences, Tally},
};
use crate::{ReportedFigure, Whose};

/// Explains the figures by cgroup, or by mount: one of them has what several moved, the others have
/// nothing.
pub(super) fn explain(tally: &mut Tally, differences: &mut Differences<'_>, whose: Whose) {
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

/// A name under which several are reported, the evidence, and whether that explains each of
/// `comparisons`.
fn one_of_several(
    figure: &ReportedFigure,
    comparisons: &[Comparison<'_>],
    grown: &Grown,
    slack: u64,
) -> Option<(String, Line, Vec<bool>)> {
    // What rounding down can make nothing of is not missing.
    let is_missing = |one: &Comparison<'_>| !one.explained && one.expected > one.slack && one.reported == 0;
    // What a correct tool may leave out is missing of a wrong one for that reason, or because it is
    // merged, too.
    let certain = |one: &Comparison<'_>| is_missing(one) && one.at_least > one.slack;
    let groups: [&dyn Fn(&Comparison<'_>) -> bool; 2] = [&certain, &is_missing];
    // A name that is taken for that of one is not that of several.
    let is_taken = |name: &str| comparisons.iter().any(|one| one.also.iter().any(|also| also == name));
    let names = || {
        grown.iter().filter_map(|(name, &value)| Some((name.as_deref()?, value))).filter(|(name, _)| !is_taken(name))
    };
    // Other mounts may be missing for another reason. Those of one last component belong together
    // before all that are missing.
    let sum_of = |name: &str, value: u64, belongs: &dyn Fn(&Comparison<'_>) -> bool| {
        let missing: Vec<&Comparison<'_>> = comparisons.iter().filter(|one| belongs(one)).collect();
        let evidence = sum(figure, &missing, comparisons, (name, value), slack)?;
        let is_of = |one: &Comparison<'_>| belongs(one) || one.subject.has_name(name);
        Some((name.to_owned(), evidence, comparisons.iter().map(is_of).collect()))
    };
    let by_name = groups.iter().find_map(|group| {
        names().find_map(|(name, value)| {
            sum_of(name, value, &|one| group(one) && is_last_component(name, one.subject.shown()))
        })
    });
    by_name.or_else(|| groups.iter().find_map(|group| names().find_map(|(name, value)| sum_of(name, value, group))))
}

/// The evidence, where what all of `all_missing` did was reported under `name` as well.
fn sum(
    figure: &ReportedFigure,
    all_missing: &[&Comparison<'_>],
    comparisons: &[Comparison<'_>],
    (name, value): (&str, u64),
    slack: u64,
) -> Option<Line> {
    let sum = |of: fn(&Comparison<'_>) -> u64| all_missing.iter().fold(0_u64, |sum, one| sum.saturating_add(of(one)));
    let (missing, at_least, at_most) = (sum(|one| one.expected), sum(|one| one.at_least), sum(|one| one.at_most));
    // What may all be missing is merged with nothing.
    if at_least <= slack {
        return None;
    }
    let of_name = comparisons.iter().find(|one| one.subject.has_name(name));
    let (own, own_least, own_most) = of_name.map_or((0, 0, 0), |one| (one.expected, one.at_least, one.at_most));
    let parts = all_missing.len() + usize::from(own > 0);
    // More than its own, and as much as all together. Of a single one it would be another name, not
    // a sum.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of cgroups and mounts that only the tool knows. A figure with exactly the missing amount
//! of a subject shows which subject such a name stands for. Other figures with that name are then
//! compared with that subject.

use std::collections::BTreeMap;

use super::{
    finding_comparison::{ComparedFigure, GrowthBySubject, NumberComparison},
    truth::Truth,
};
use crate::file::{ReportedFigure, Whose};

/// Maps each unknown name to its only possible subject; `None` if that is uncertain.
#[derive(Debug, Default)]
pub(super) struct Aliases(BTreeMap<(Whose, String), Option<String>>);

impl Aliases {
    /// Finds aliases. An unknown name stands for an unreported subject if a figure under that name
    /// is exactly what this subject alone lacks. If several subjects fit, the subject whose last
    /// path component is the name counts.
    pub(super) fn found(figures: &[ComparedFigure<'_>], truth: &Truth) -> Self {
        let mut found = Self::default();
        if !truth.is_whole_system {
            return found;
        }
        for ComparedFigure { figure, compared, .. } in figures {
            let Ok((comparisons, grown)) = compared else { continue };
            if !matches!(figure.whose, Whose::Cgroup | Whose::Mount) {
                continue;
            }
            for (name, value) in unknown(figure, grown, truth) {
                let same = comparisons.iter().filter(|one| may_stand_for(name, value, one));
                let same: Vec<&str> = same.map(|one| one.subject.shown()).collect();
                if same.is_empty() {
                    continue;
                }
                let subject = only(&same, |of| is_last_component(name, of)).map(|of| (*of).to_owned());
                let known = found.0.entry((figure.whose, name.to_owned())).or_insert_with(|| subject.clone());
                if *known != subject {
                    *known = None;
                }
            }
        }
        // A subject has only one other name. If two names fit, one of them fits by chance: the one
        // that is not the last path component.
        let mut names: BTreeMap<(Whose, String), Vec<String>> = BTreeMap::new();
        for ((whose, name), subject) in &found.0 {
            if let Some(subject) = subject {
                names.entry((*whose, subject.clone())).or_default().push(name.clone());
            }
        }
        for ((whose, name), subject) in &mut found.0 {
            let Some(of) = subject.clone() else { continue };
            if only(&names[&(*whose, of.clone())], |name| is_last_component(name, &of)) != Some(name) {
                *subject = None;
            }
        }
        found
    }

    /// Adds amounts reported under an alias to the subject that it stands for, if the subject was
    /// not reported by its own name.
    pub(super) fn apply(
        &self,
        figure: &ReportedFigure,
        comparisons: &mut [NumberComparison<'_>],
        grown: &GrowthBySubject,
    ) {
        let of_figure = self.0.iter().filter(|((whose, _), _)| *whose == figure.whose);
        for ((_, name), subject) in of_figure {
            let is_meant =
                |one: &NumberComparison<'_>| one.reported == 0 && subject.as_deref() == Some(one.subject.shown());
            let place = comparisons.iter().position(is_meant);
            let (Some(place), Some(&value)) = (place, grown.get(&Some(name.clone()))) else { continue };
            // The name can mean several subjects that did something.
            let has_its_name = |(at, one): (usize, &NumberComparison<'_>)| {
                at != place && one.reported == 0 && one.at_least > 0 && is_last_component(name, one.subject.shown())
            };
            if value > comparisons[place].at_most && comparisons.iter().enumerate().any(has_its_name) {
                continue;
            }
            let one = &mut comparisons[place];
            one.reported = one.reported.saturating_add(value);
            one.also.push(name.clone());
        }
    }
}

/// Whether `name` with the amount `value` can mean a subject that was not reported by its own name.
/// If a correct tool can leave out the subject, the amount alone is not enough evidence.
fn may_stand_for(name: &str, value: u64, one: &NumberComparison<'_>) -> bool {
    let is_by_name = || is_last_component(name, one.subject.shown()) && one.may_be(value);
    one.reported == 0 && (one.lacks(value) || is_by_name())
}

/// Whether `name` is the last component of the path `of`.
pub(super) fn is_last_component(name: &str, of: &str) -> bool {
    of.rsplit_once('/').is_some_and(|(_, last)| last == name)
}

/// Returns the only element, or the only preferred one.
fn only<T>(all: &[T], is_preferred: impl Fn(&T) -> bool) -> Option<&T> {
    if let [one] = all {
        return Some(one);
    }
    let mut preferred = all.iter().filter(|one| is_preferred(one));
    preferred.next().filter(|_| preferred.next().is_none())
}

/// The growth of `figure` under unknown names. Pipes, sockets and other things without a mount have
/// an empty name.
pub(super) fn unknown<'g>(
    figure: &ReportedFigure,
    grown: &'g GrowthBySubject,
    truth: &Truth,
) -> impl Iterator<Item = (&'g str, u64)> {
    let named =
        grown.iter().filter_map(|(name, &value)| Some((name.as_deref().filter(|name| !name.is_empty())?, value)));
    named.filter(|(name, value)| *value > 0 && !truth.knows(figure.whose, name))
}

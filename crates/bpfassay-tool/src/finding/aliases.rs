// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of cgroups and mounts that only the tool knows. A figure that is right shows which subject
//! such a name stands for, and the other figures of that name are compared with that subject.

use std::collections::BTreeMap;

use super::{
    comparison::{ComparedFigure, Comparison, Grown},
    truth::Truth,
};
use crate::{ReportedFigure, Whose};

/// The names, each with that of the only subject which it can be; `None` where that is not certain.
#[derive(Debug, Default)]
pub(super) struct Aliases(BTreeMap<(Whose, String), Option<String>>);

impl Aliases {
    /// Looks for them: an unknown name stands for a subject that was not reported, if a figure of
    /// it is exactly what that lacks, and lacks alone. Of several, it is that of which the name is
    /// the last component.
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
        // Nothing has two other names: one of them is right by chance, and that is not its last
        // component.
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

    /// Adds what was reported under other names to what they stand for, where that was not
    /// reported.
    pub(super) fn apply(&self, figure: &ReportedFigure, comparisons: &mut [Comparison<'_>], grown: &Grown) {
        let of_figure = self.0.iter().filter(|((whose, _), _)| *whose == figure.whose);
        for ((_, name), subject) in of_figure {
            let is_meant = |one: &Comparison<'_>| one.reported == 0 && subject.as_deref() == Some(one.subject.shown());
            let place = comparisons.iter().position(is_meant);
            let (Some(place), Some(&value)) = (place, grown.get(&Some(name.clone()))) else { continue };
            // Where several did something, it may be the name of all.
            let has_its_name = |(at, one): (usize, &Comparison<'_>)| {
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

/// Whether `name`, of which a figure is `value`, may stand for a subject that was not reported by a
/// name of its own. What a correct tool may leave out is not missing: there the amount alone says
/// too little.
fn may_stand_for(name: &str, value: u64, one: &Comparison<'_>) -> bool {
    let is_by_name = || is_last_component(name, one.subject.shown()) && one.may_be(value);
    one.reported == 0 && (one.lacks(value) || is_by_name())
}

/// Whether `name` is the last component of the path `of`.
pub(super) fn is_last_component(name: &str, of: &str) -> bool {
    of.rsplit_once('/').is_some_and(|(_, last)| last == name)
}

/// The only one of `all`, or the only one that is preferred.
fn only<T>(all: &[T], is_preferred: impl Fn(&T) -> bool) -> Option<&T> {
    if let [one] = all {
        return Some(one);
    }
    let mut preferred = all.iter().filter(|one| is_preferred(one));
    preferred.next().filter(|_| preferred.next().is_none())
}

/// What `figure` grew by under names that are not known. Without a name are pipes, sockets and
/// other things that are on no mount.
pub(super) fn unknown<'g>(
    figure: &ReportedFigure,
    grown: &'g Grown,
    truth: &Truth,
) -> impl Iterator<Item = (&'g str, u64)> {
    let named =
        grown.iter().filter_map(|(name, &value)| Some((name.as_deref().filter(|name| !name.is_empty())?, value)));
    named.filter(|(name, value)| *value > 0 && !truth.knows(figure.whose, name))
}

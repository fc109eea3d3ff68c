// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cgroups and mounts that a tool calls by names which nobody else knows: found by the figures that are right, so that the others of the same name
//! are compared with whose they are.

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
    /// Looks for them: an unknown name stands for a subject that was not reported, if a figure of it is exactly what that lacks, and lacks alone.
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
                let mut same = comparisons.iter().filter(|one| one.reported == 0 && one.lacks(value));
                let Some(subject) = same.next().map(|one| one.subject.shown().to_owned()) else { continue };
                let subject = Some(subject).filter(|_| same.next().is_none());
                let known = found.0.entry((figure.whose, name.to_owned())).or_insert_with(|| subject.clone());
                if *known != subject {
                    *known = None;
                }
            }
        }
        // Nothing has two other names: one of them is right by chance.
        let mut names = BTreeMap::new();
        for ((whose, _), subject) in &found.0 {
            *names.entry((*whose, subject.clone())).or_insert(0_u64) += 1;
        }
        for ((whose, _), subject) in &mut found.0 {
            if names[&(*whose, subject.clone())] > 1 {
                *subject = None;
            }
        }
        found
    }

    /// Adds what was reported under other names to what they stand for, where that was not reported.
    pub(super) fn apply(&self, figure: &ReportedFigure, comparisons: &mut [Comparison<'_>], grown: &Grown) {
        let of_figure = self.0.iter().filter(|((whose, _), _)| *whose == figure.whose);
        for ((_, name), subject) in of_figure {
            let is_meant =
                |one: &&mut Comparison<'_>| one.reported == 0 && subject.as_deref() == Some(one.subject.shown());
            let one = comparisons.iter_mut().find(is_meant);
            if let (Some(one), Some(&value)) = (one, grown.get(&Some(name.clone()))) {
                one.reported = one.reported.saturating_add(value);
                one.also.push(name.clone());
            }
        }
    }
}

/// What `figure` grew by under names that are not known. Without a name are pipes, sockets and other things that are on no mount.
pub(super) fn unknown<'g>(
    figure: &ReportedFigure,
    grown: &'g Grown,
    truth: &Truth,
) -> impl Iterator<Item = (&'g str, u64)> {
    let named =
        grown.iter().filter_map(|(name, &value)| Some((name.as_deref().filter(|name| !name.is_empty())?, value)));
    named.filter(|(name, value)| *value > 0 && !truth.knows(figure.whose, name))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares each number that a tool reported with the bounds of the ground truth.

use std::collections::BTreeMap;

use super::{
    process::ProcessKey,
    truth::{Share, Subject, Truth, total, united},
};
use crate::{
    Readings, Report, ReportedFigure, Unit, Whose,
    readings::{self, negative},
};

/// The figures whose units `truth` has, with their places in the report.
pub(super) fn comparable<'r>(report: &'r Report, truth: &Truth) -> impl Iterator<Item = (usize, &'r ReportedFigure)> {
    report.figures.iter().enumerate().filter(|(_, figure)| truth.units.contains(&figure.unit))
}

/// One number of a figure beside what it should be.
pub(super) struct Comparison<'t> {
    pub(super) subject: Subject<'t>,
    /// What happened.
    pub(super) expected: u64,
    /// The least that a correct tool reports: see [`Truth::optional`].
    pub(super) at_least: u64,
    /// The most that a correct tool reports: see [`Truth::earlier`].
    pub(super) at_most: u64,
    /// In two's complement where it is negative: see [`Comparison::negative`].
    pub(super) reported: u64,
    /// The amount that the tool may have rounded down by.
    pub(super) slack: u64,
    /// Whether findings explain the whole difference.
    pub(super) explained: bool,
    /// How much of what is missing findings explain.
    pub(super) accounted: u64,
    /// Which findings explain a part of it, as sentences without an end.
    pub(super) causes: Vec<String>,
    /// Names that are not known, under which it was reported as well: see `aliases.rs`.
    pub(super) also: Vec<String>,
}

impl Comparison<'_> {
    /// Whether the tool's number may stand for `amount`.
    pub(super) const fn is(&self, amount: u64) -> bool {
        self.reported <= amount && amount - self.reported <= self.slack
    }

    /// The bytes that calls asked for, of a figure of bytes returned; `None` where that is not
    /// known, or they returned as many.
    pub(super) fn asked(&self) -> Option<u64> {
        self.subject.total(Unit::BytesRequested).filter(|asked| *asked != self.expected)
    }

    /// Whether the tool's number is what calls asked for.
    pub(super) fn is_asked(&self) -> bool {
        self.is_open() && self.asked().is_some_and(|asked| self.is(asked))
    }

    /// Whether a correct tool may report `amount`.
    pub(super) const fn may_be(&self, amount: u64) -> bool {
        self.at_least <= amount.saturating_add(self.slack) && amount <= self.at_most
    }

    /// The number, where it is negative: nothing that counts what happened is.
    pub(super) fn negative(&self) -> Option<i64> {
        negative(self.reported)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.explained && self.negative().is_none() && !self.may_be(self.reported)
    }

    /// The sum of what was reported and of what findings explain besides.
    fn with_accounted(&self) -> u64 {
        self.reported.saturating_add(self.accounted)
    }

    /// Whether something is missing that is not explained.
    pub(super) fn is_too_low(&self) -> bool {
        self.is_open() && self.with_accounted().saturating_add(self.slack) < self.at_least
    }

    /// How much is missing that no finding explains, at least.
    pub(super) fn missing(&self) -> u64 {
        let known = self.with_accounted().saturating_add(self.slack);
        if self.is_too_low() { self.at_least.saturating_sub(known) } else { 0 }
    }

    /// Explains `amount` of what is missing, and no more, by `cause`.
    pub(super) fn account(&mut self, amount: u64, cause: &str) {
        if !self.is_too_low() || amount == 0 {
            return;
        }
        self.accounted = self.accounted.saturating_add(amount);
        if self.is_too_low() {
            self.causes.push(format!("{amount} of what is missing {cause}"));
        } else {
            self.explained = true;
        }
    }

    /// Whether exactly `amount` is missing, as far as can be known: an amount no greater than what
    /// the truth is uncertain by would fit by chance.
    pub(super) fn lacks(&self, amount: u64) -> bool {
        let with = self.reported.saturating_add(amount);
        // What findings explain of it is not known to the unit.
        self.accounted == 0 && self.is_too_low() && self.may_be(with) && amount > self.at_most - self.at_least
    }
}

/// `value` of `whose subject`, for evidence.
pub(super) fn shown(figure: &ReportedFigure, comparison: &Comparison<'_>) -> String {
    let Comparison { subject, expected, at_least, at_most, reported, causes, .. } = comparison;
    let really = match at_least == at_most {
        true => expected.to_string(),
        false => format!("{at_least} to {at_most}"),
    };
    let of = match figure.whose {
        Whose::System => String::new(),
        whose => format!(" of {} {}", whose.name(), subject.shown_of(whose)),
    };
    let (name, unit, reported) = (figure.name(), figure.unit.name(), readings::shown(*reported));
    let causes: String = causes.iter().map(|cause| format!("; {cause}")).collect();
    format!("`{name}` ({}, {unit}){of}: {reported}, really {really}{causes}", figure.counted())
}

/// The growth of a figure, by subject.
pub(super) type Grown = BTreeMap<Option<String>, u64>;

/// A figure with its place in the report, compared, or why it cannot be.
pub(super) struct ComparedFigure<'a> {
    pub(super) index: usize,
    pub(super) figure: &'a ReportedFigure,
    pub(super) compared: Result<(Vec<Comparison<'a>>, Grown), String>,
}

impl<'a> ComparedFigure<'a> {
    /// Every figure that is defined as the truth is, in the order of the report.
    pub(super) fn all(report: &'a Report, readings: &Readings, truth: &'a Truth) -> Vec<Self> {
        let figures = comparable(report, truth).filter(|(_, figure)| figure.differs.is_none());
        figures
            .map(|(index, figure)| Self { index, figure, compared: compare(index, figure, readings, truth) })
            .collect()
    }
}

/// `figure` beside the truth, subject by subject, and what it grew by.
///
/// # Errors
/// A message that names what the report or the ground truth lacks for a comparison.
pub(super) fn compare<'t>(
    index: usize,
    figure: &ReportedFigure,
    readings: &Readings,
    truth: &'t Truth,
) -> Result<(Vec<Comparison<'t>>, Grown), String> {
    let grown = readings.grown(index, figure, truth.from_ns, truth.to_ns)?;
    let unknown = || truth.shares.iter().chain(&truth.earlier).filter(|share| share.may_be_counted(figure));
    if let Some(Share { operation, .. }) = unknown().next() {
        let of_operation = unknown().filter(|share| share.operation == *operation);
        let calls = of_operation.fold(0_u64, |sum, share| sum.saturating_add(share.calls));
        return Err(format!("the variant of {calls} calls of `{operation}` is not recorded"));
    }
    let key = ProcessKey::of(index, figure, readings, truth)?;
    let mut comparisons = Vec::new();
    for subject in united(truth.subjects(figure, key), grown.keys().flatten()) {
        let known = |shares: &[&Share]| {
            total(shares, figure.unit).ok_or_else(|| {
                format!("the ground truth does not know the {} of `{}`", figure.unit.name(), figure.name())
            })
        };
        let expected = known(&subject.shares)?;
        let at_least = expected.saturating_sub(known(&subject.optional)?);
        let at_most = expected.saturating_add(known(&subject.besides)?);
        let is_of = |name: &Option<String>| match name {
            None => figure.whose == Whose::System,
            Some(name) => subject.has_name(name),
        };
        let reported =
            grown.iter().filter(|(name, _)| is_of(name)).fold(0_u64, |sum, (_, value)| readings::sum(sum, *value));
        let samples = readings.samples.iter().filter(|sample| sample.figure == index && is_of(&sample.subject)).count();
        // Each number that it reported may have been rounded down.
        let slack = (figure.scale - 1).saturating_mul(u64::try_from(samples).unwrap_or(u64::MAX));
        comparisons.push(Comparison {
            subject,
            expected,
            at_least,
            at_most,
            reported,
            slack,
            explained: false,
            accounted: 0,
            causes: Vec::new(),
            also: Vec::new(),
        });
    }
    Ok((comparisons, grown))
}

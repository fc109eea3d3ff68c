// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares each reported number with the bounds of the ground truth.

use std::collections::BTreeMap;

use super::{
    process_identity::ProcessKey,
    truth::{CallShare, ShareSubject, Truth, total, united},
};
use crate::{
    file::{CountedUnit, Report, ReportedFigure, Whose},
    readings::{self, Readings, negative},
};

/// The figures whose units `truth` has, with their indices in the report.
pub(super) fn comparable<'r>(report: &'r Report, truth: &Truth) -> impl Iterator<Item = (usize, &'r ReportedFigure)> {
    report.figures.iter().enumerate().filter(|(_, figure)| truth.units.contains(&figure.unit))
}

/// A reported number and its expected value.
pub(super) struct NumberComparison<'t> {
    pub(super) subject: ShareSubject<'t>,
    /// The truth.
    pub(super) expected: u64,
    /// The least that a correct tool reports; see [`Truth::optional`].
    pub(super) at_least: u64,
    /// The most that a correct tool reports; see [`Truth::earlier`].
    pub(super) at_most: u64,
    /// The reported number, in two's complement if negative; see [`NumberComparison::negative`].
    pub(super) reported: u64,
    /// The largest amount lost by the tool's rounding.
    pub(super) slack: u64,
    /// Whether findings explain the whole difference.
    pub(super) explained: bool,
    /// How much of the missing amount findings explain.
    pub(super) accounted: u64,
    /// Findings that explain a part of the difference, as sentences without a full stop.
    pub(super) causes: Vec<String>,
    /// Unknown names under which the subject was also reported; see `aliases.rs`.
    pub(super) also: Vec<String>,
}

impl NumberComparison<'_> {
    /// Whether the tool's number can be a rounded form of `amount`.
    pub(super) const fn is(&self, amount: u64) -> bool {
        self.reported <= amount && amount - self.reported <= self.slack
    }

    /// Requested bytes, for a figure of returned bytes. `None` if unknown or equal to the returned
    /// bytes.
    pub(super) fn asked(&self) -> Option<u64> {
        self.subject.total(CountedUnit::BytesRequested).filter(|asked| *asked != self.expected)
    }

    /// Whether the tool's number is the requested bytes.
    pub(super) fn is_asked(&self) -> bool {
        self.is_open() && self.asked().is_some_and(|asked| self.is(asked))
    }

    /// Whether a correct tool can report `amount`.
    pub(super) const fn may_be(&self, amount: u64) -> bool {
        self.at_least <= amount.saturating_add(self.slack) && amount <= self.at_most
    }

    /// The number, if negative. Correct counts are never negative.
    pub(super) fn negative(&self) -> Option<i64> {
        negative(self.reported)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.explained && self.negative().is_none() && !self.may_be(self.reported)
    }

    /// Sum of the reported amount and the amount that findings explain.
    fn with_accounted(&self) -> u64 {
        self.reported.saturating_add(self.accounted)
    }

    /// Whether an unexplained amount is missing.
    pub(super) fn is_too_low(&self) -> bool {
        self.is_open() && self.with_accounted().saturating_add(self.slack) < self.at_least
    }

    /// The least amount that is missing without an explanation.
    pub(super) fn missing(&self) -> u64 {
        let known = self.with_accounted().saturating_add(self.slack);
        if self.is_too_low() { self.at_least.saturating_sub(known) } else { 0 }
    }

    /// Explains at most `amount` of what is missing by `cause`.
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

    /// Whether exactly `amount` is missing, as far as known. An amount within the truth's
    /// uncertainty is rejected, because it would fit by chance.
    pub(super) fn lacks(&self, amount: u64) -> bool {
        let with = self.reported.saturating_add(amount);
        // Amounts that findings explain are not exact.
        self.accounted == 0 && self.is_too_low() && self.may_be(with) && amount > self.at_most - self.at_least
    }
}

/// Prints the comparison for evidence.
pub(super) fn shown(figure: &ReportedFigure, comparison: &NumberComparison<'_>) -> String {
    let NumberComparison { subject, expected, at_least, at_most, reported, causes, .. } = comparison;
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

/// Growth of a figure by subject.
pub(super) type GrowthBySubject = BTreeMap<Option<String>, u64>;

/// A figure with its index in the report, compared, or the reason why that is impossible.
pub(super) struct ComparedFigure<'a> {
    pub(super) index: usize,
    pub(super) figure: &'a ReportedFigure,
    pub(super) compared: Result<(Vec<NumberComparison<'a>>, GrowthBySubject), String>,
}

impl<'a> ComparedFigure<'a> {
    /// Compares every figure that is defined like the truth, in the order of the report.
    pub(super) fn all(report: &'a Report, readings: &Readings, truth: &'a Truth) -> Vec<Self> {
        let figures = comparable(report, truth).filter(|(_, figure)| figure.differs.is_none());
        figures
            .map(|(index, figure)| Self { index, figure, compared: compare(index, figure, readings, truth) })
            .collect()
    }
}

/// Compares `figure` with the truth, subject by subject. Also returns the figure's growth.
///
/// # Errors
/// A message that names what is missing in the report or the ground truth.
pub(super) fn compare<'t>(
    index: usize,
    figure: &ReportedFigure,
    readings: &Readings,
    truth: &'t Truth,
) -> Result<(Vec<NumberComparison<'t>>, GrowthBySubject), String> {
    let grown = readings.grown(index, figure, truth.from_ns, truth.to_ns)?;
    let unknown = || truth.shares.iter().chain(&truth.earlier).filter(|share| share.may_be_counted(figure));
    if let Some(CallShare { operation, .. }) = unknown().next() {
        let of_operation = unknown().filter(|share| share.operation == *operation);
        let calls = of_operation.fold(0_u64, |sum, share| sum.saturating_add(share.calls));
        return Err(format!("the variant of {calls} calls of `{operation}` is not recorded"));
    }
    let key = ProcessKey::of(index, figure, readings, truth)?;
    let mut comparisons = Vec::new();
    for subject in united(truth.subjects(figure, key), grown.keys().flatten()) {
        let known = |shares: &[&CallShare]| {
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
        // Each reported number can have been rounded down.
        let slack = (figure.scale - 1).saturating_mul(u64::try_from(samples).unwrap_or(u64::MAX));
        comparisons.push(NumberComparison {
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

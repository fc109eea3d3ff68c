// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that tools leave out together: failed calls, and calls of one variant of an operation. If
//! they match the missing amount exactly, no other cause is needed.

use std::collections::BTreeMap;

use bpfassay_protocol::{Operation, operation::Variant};

use super::{
    finding_comparison::NumberComparison,
    process_identity::ProcessKey,
    truth::{CallShare, Truth},
};
use crate::file::{CountedUnit, ReportedFigure, Whose};

/// Calls of which a tool counts all or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallSet {
    Of(Variant),
    /// Failed calls that belong to no variant in the same set.
    Failed,
}

impl CallSet {
    /// Describes `many` of these calls, such as `the 8 calls of fdatasync`.
    fn shown(self, many: u64) -> String {
        let (noun, of) = match self {
            Self::Of(Variant::Open) => ("open", "by other calls than execve"),
            Self::Of(Variant::Exec) => ("open", "by execve"),
            Self::Of(Variant::Fsync) => ("call", "of fsync itself"),
            Self::Of(Variant::Fdatasync) => ("call", "of fdatasync"),
            Self::Failed => ("call", "that failed"),
        };
        let plural = if many == 1 { "" } else { "s" };
        format!("the {many} {noun}{plural} {of}")
    }
}

/// A set of such calls that together match the missing amount.
#[derive(Debug)]
pub(super) struct LeftOutCalls {
    calls: Vec<(CallSet, u64)>,
}

impl LeftOutCalls {
    /// Finds the smallest sets whose amount equals the missing amount of `figure` in `one`. Returns
    /// several if more than one set of that size matches.
    pub(super) fn of(figure: &ReportedFigure, one: &NumberComparison<'_>) -> Vec<Self> {
        let all = sets(figure, one).into_iter().map(|set| Self { calls: amounts(figure, one, &set) });
        let is_whole = |set: &Self| set.calls.iter().all(|(_, amount)| *amount > 0);
        let is_missing = |set: &Self| (1..one.expected).contains(&set.amount()) && one.lacks(set.amount());
        let mut missing: Vec<Self> = all.filter(|set| is_whole(set) && is_missing(set)).collect();
        let fewest = missing.iter().map(|set| set.calls.len()).min();
        missing.retain(|set| Some(set.calls.len()) == fewest);
        missing
    }

    fn amount(&self) -> u64 {
        self.calls.iter().fold(0, |sum, (_, amount)| sum.saturating_add(*amount))
    }

    /// Whether the set consists of variants only, whether or not the calls failed.
    pub(super) fn is_of_variants(&self) -> bool {
        self.calls.iter().all(|(calls, _)| *calls != CallSet::Failed)
    }

    /// Prints `the 8 calls of fdatasync and the 2 calls that failed`.
    pub(super) fn shown(&self) -> String {
        let all: Vec<String> = self.calls.iter().map(|(calls, amount)| calls.shown(*amount)).collect();
        all.join(" and ")
    }

    /// Says that these calls are missing.
    pub(super) fn missing(&self) -> String {
        let verb = if self.amount() == 1 { "is" } else { "are" };
        format!("{} {verb} missing", self.shown())
    }
}

/// All sets that tools can leave out: at most one variant of each operation, unless it is the only
/// one, and failed calls.
fn sets(figure: &ReportedFigure, one: &NumberComparison<'_>) -> Vec<Vec<CallSet>> {
    let mut sets = vec![Vec::new()];
    for operation in [Operation::Open, Operation::Fsync] {
        let whole = one.subject.of(operation, figure.unit);
        let of_operation = Variant::ALL.iter().filter(|variant| variant.operation() == operation);
        let some = of_operation.filter(|variant| of_variant(figure, one, **variant) < whole);
        let with: Vec<Vec<CallSet>> = some
            .flat_map(|variant| sets.iter().map(move |set| [set.as_slice(), &[CallSet::Of(*variant)]].concat()))
            .collect();
        sets.extend(with);
    }
    if figure.unit == CountedUnit::Calls && one.subject.total(CountedUnit::Errors).is_some() {
        let with: Vec<Vec<CallSet>> = sets.iter().map(|set| [set.as_slice(), &[CallSet::Failed]].concat()).collect();
        sets.extend(with);
    }
    sets.retain(|set| !set.is_empty());
    sets
}

fn of_variant(figure: &ReportedFigure, one: &NumberComparison<'_>, variant: Variant) -> u64 {
    let shares = one.subject.shares.iter().filter(|share| share.variant == Some(variant));
    shares.filter_map(|share| share.amount(figure.unit)).fold(0, u64::saturating_add)
}

/// Amount of each element of `set`.
fn amounts(figure: &ReportedFigure, one: &NumberComparison<'_>, set: &[CallSet]) -> Vec<(CallSet, u64)> {
    let is_other = |share: &&&CallShare| !share.variant.is_some_and(|variant| set.contains(&CallSet::Of(variant)));
    let amount = |calls: &CallSet| match *calls {
        CallSet::Of(variant) => of_variant(figure, one, variant),
        CallSet::Failed => {
            let others = one.subject.shares.iter().filter(is_other);
            others.filter_map(|share| share.amount(CountedUnit::Errors)).fold(0, u64::saturating_add)
        }
    };
    set.iter().map(|calls| (*calls, amount(calls))).collect()
}

/// Says that all calls of an unreported figure used another system call than the operation's
/// namesake.
pub(super) fn only(figure: &ReportedFigure, one: &NumberComparison<'_>) -> String {
    let is_all = |variant: &&Variant| one.expected > 0 && of_variant(figure, one, **variant) == one.expected;
    let unusual = [Variant::Exec, Variant::Fdatasync];
    let variant = unusual.iter().find(is_all);
    variant.map(|variant| format!(", which is {}", CallSet::Of(*variant).shown(one.expected))).unwrap_or_default()
}

/// Names calls that `figure` counts too many in `one`, if they are exactly those that the tool file
/// excludes.
pub(super) fn besides(figure: &ReportedFigure, one: &NumberComparison<'_>, truth: &Truth) -> String {
    let is_excess = |amount: u64| {
        amount > one.at_most - one.at_least && one.reported.checked_sub(amount).is_some_and(|rest| one.may_be(rest))
    };
    let is_of_subject = |share: &&CallShare| {
        let mut names = ProcessKey::ALL.iter().flat_map(|&key| share.names(figure.whose, key));
        figure.whose == Whose::System || names.any(|name| one.subject.has_name(name))
    };
    let mut others: BTreeMap<Variant, u64> = BTreeMap::new();
    for share in truth.shares.iter().filter(|share| share.is_of(figure) && !share.is_counted(figure)) {
        if let (Some(variant), Some(amount)) =
            (share.variant, share.amount(figure.unit).filter(|_| is_of_subject(&share)))
        {
            let sum = others.entry(variant).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    let failed = one.subject.total(CountedUnit::Errors).filter(|_| figure.unit == CountedUnit::Successes);
    let all = others.into_iter().map(|(variant, amount)| (CallSet::Of(variant), amount));
    let all = all.chain(failed.map(|amount| (CallSet::Failed, amount)));
    let shown: Vec<String> =
        all.filter(|(_, amount)| is_excess(*amount)).map(|(calls, amount)| calls.shown(amount)).collect();
    if shown.is_empty() { String::new() } else { format!("; as much more as {}", shown.join(", or ")) }
}

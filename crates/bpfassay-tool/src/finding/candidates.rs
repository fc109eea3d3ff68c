// SPDX-License-Identifier: MIT OR Apache-2.0
//! Candidates for a missing amount: failed calls or calls of one variant, parts of what happened,
//! operations, and the first call of each key. Failed calls and variants have priority. Other
//! causes are named only if no other cause explains the same amount.

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_protocol::Operation;

use super::{
    certainty::Certainty, finding_comparison::NumberComparison, left_out::LeftOutCalls, process_identity::ProcessKey,
    truth::total,
};
use crate::file::{CountedUnit, ReportedFigure, Whose};

/// Largest number of parts that are shown.
const MOST_PARTS: usize = 4;

/// A larger number of operations is cut to this, because sets of more operations fit by chance.
const MOST_OPERATIONS: usize = 12;

/// A part of what happened.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CandidatePart {
    /// A mount, cgroup or process with its kind: `mount /mnt`.
    Subject(String),
    Operation(Operation),
    /// A phase of the workload.
    Phase(String),
}

impl CandidatePart {
    fn shown(&self) -> String {
        match self {
            Self::Subject(name) => name.clone(),
            Self::Operation(operation) => format!("operation {operation}"),
            Self::Phase(name) => format!("phase {name}"),
        }
    }
}

/// All causes that explain exactly the missing amount of one number.
pub(super) struct Candidates {
    /// Sets of failed calls or variants; several if more than one set fits.
    left_out: Vec<LeftOutCalls>,
    /// How certain it is that an exactly fitting amount is the missing one.
    certainty: Certainty,
    /// Parts with the operations of each. A subject with a single part has none here, because that
    /// part would be everything.
    parts: BTreeMap<CandidatePart, BTreeSet<Operation>>,
    /// The smallest set of operations, if only one such set fits.
    operations: Option<(Certainty, Vec<Operation>)>,
    /// Amount of the first call of each key.
    first_calls: Option<u64>,
}

/// Operations that alone explain the missing amount.
pub(super) struct Unseen<'c> {
    pub(super) certainty: Certainty,
    pub(super) operations: &'c [Operation],
    /// The phase of the operations, if it was only one.
    pub(super) phases: String,
}

impl Candidates {
    /// Finds the candidates for the missing amount of `figure` in `one`.
    pub(super) fn of(figure: &ReportedFigure, one: &NumberComparison<'_>) -> Self {
        Self {
            left_out: LeftOutCalls::of(figure, one),
            certainty: Certainty::of_amount(one),
            parts: parts(figure, one),
            operations: operations(figure, one),
            first_calls: first_calls(figure, one),
        }
    }

    /// The missing calls of a variant, if no operations explain the amount.
    pub(super) fn variants(&self) -> Option<(Certainty, String)> {
        let [one] = self.left_out.as_slice() else { return None };
        if !one.is_of_variants() || self.operations.is_some() {
            return None;
        }
        let is_alone = self.parts.is_empty() && self.first_calls.is_none();
        Some((if is_alone { self.certainty } else { Certainty::Fitting }, one.missing()))
    }

    /// The operations, if no mount, cgroup, process, other operation or other way of counting
    /// explains the amount. A phase with only these operations does not count as another
    /// explanation.
    pub(super) fn operations(&self) -> Option<Unseen<'_>> {
        let (certainty, operations) = self.operations.as_ref()?;
        let is_same = |(part, of): (&CandidatePart, &BTreeSet<Operation>)| match part {
            CandidatePart::Subject(_) => false,
            CandidatePart::Operation(operation) => operations.as_slice() == [*operation],
            CandidatePart::Phase(_) => of.iter().all(|operation| operations.contains(operation)),
        };
        if !self.left_out.is_empty() || self.first_calls.is_some() || !self.parts.iter().all(is_same) {
            return None;
        }
        let phases: Vec<String> = self
            .parts
            .keys()
            .filter(|part| matches!(part, CandidatePart::Phase(_)))
            .map(CandidatePart::shown)
            .collect();
        let certainty = if phases.is_empty() { *certainty } else { Certainty::Fitting };
        Some(Unseen { certainty, operations, phases: as_much_as(phases) })
    }

    /// The amount of the first calls, if nothing else explains it.
    pub(super) fn first_calls(&self) -> Option<u64> {
        self.first_calls.filter(|_| self.left_out.is_empty() && self.operations.is_none() && self.parts.is_empty())
    }

    /// Lists all candidates for the end of an evidence line.
    pub(super) fn shown(&self) -> String {
        let operations = self.operations.as_ref().map_or(&[][..], |(_, operations)| operations.as_slice());
        match self.left_out.as_slice() {
            [] => {}
            [one] if operations.is_empty() => return format!(": {}", one.missing()),
            several => {
                let mut all: Vec<String> = several.iter().map(LeftOutCalls::shown).collect();
                all.extend((!operations.is_empty()).then(|| format!("operation {}", names(operations))));
                return as_much_as(all);
            }
        }
        let mut all: Vec<String> = self.parts.keys().map(CandidatePart::shown).take(MOST_PARTS).collect();
        let more = self.parts.len().saturating_sub(MOST_PARTS);
        if more > 0 {
            all.push(format!("one of {more} other parts"));
        }
        // A single operation is already listed as a part.
        if let several @ [_, _, ..] = operations {
            all.push(format!("operations {}", names(several)));
        }
        all.extend(self.first_calls.map(|_| "the first call of each key".to_owned()));
        as_much_as(all)
    }
}

fn as_much_as(all: Vec<String>) -> String {
    if all.is_empty() { String::new() } else { format!("; as much as {}", all.join(", or ")) }
}

/// Joins the names of operations for evidence.
pub(super) fn names(operations: &[Operation]) -> String {
    operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(" and ")
}

/// Finds parts with exactly the missing amount: of one operation, mount, cgroup, process or phase.
fn parts(figure: &ReportedFigure, one: &NumberComparison<'_>) -> BTreeMap<CandidatePart, BTreeSet<Operation>> {
    let mut parts: BTreeMap<CandidatePart, (u64, BTreeSet<Operation>)> = BTreeMap::new();
    // If several processes share a name, their ids are parts, too.
    let ids: BTreeSet<&Vec<String>> = one.subject.shares.iter().map(|share| &share.process.id).collect();
    let mut subjects =
        vec![(Whose::Mount, ProcessKey::Name), (Whose::Cgroup, ProcessKey::Name), (Whose::Process, ProcessKey::Name)];
    if ids.len() > 1 && figure.whose == Whose::Process {
        subjects.push((Whose::Process, ProcessKey::Id));
    }
    for share in &one.subject.shares {
        let Some(amount) = share.amount(figure.unit).filter(|amount| *amount > 0) else { continue };
        let of = |(whose, key): (Whose, ProcessKey)| {
            share.names(whose, key).first().map(|name| format!("{} {name}", whose.name()))
        };
        let named = subjects.iter().copied().filter_map(of).map(CandidatePart::Subject);
        for part in named.chain([CandidatePart::Operation(share.operation)]) {
            let (sum, operations) = parts.entry(part).or_default();
            *sum = sum.saturating_add(amount);
            operations.insert(share.operation);
        }
    }
    for (name, shares) in &one.subject.phases {
        let Some(amount) = total(shares, figure.unit) else { continue };
        let done = shares.iter().filter(|share| share.amount(figure.unit).is_some_and(|amount| amount > 0));
        let operations = done.map(|share| share.operation).collect();
        parts.insert(CandidatePart::Phase((*name).to_owned()), (amount, operations));
    }
    let is_missing = |amount: u64| amount > 0 && amount < one.expected && one.lacks(amount);
    parts.retain(|_, (amount, _)| is_missing(*amount));
    parts.into_iter().map(|(part, (_, operations))| (part, operations)).collect()
}

/// The smallest proper subset of the operations with exactly the missing amount. `None` if there is
/// none, or several.
fn operations(figure: &ReportedFigure, one: &NumberComparison<'_>) -> Option<(Certainty, Vec<Operation>)> {
    let with_amount = |&operation: &Operation| (operation, one.subject.of(operation, figure.unit));
    let happened = figure.operations.iter().map(with_amount).filter(|(_, amount)| *amount > 0);
    let amounts: Vec<(Operation, u64)> = happened.take(MOST_OPERATIONS).collect();
    let set = |bits: u32| amounts.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1).map(|(_, one)| *one);
    let is_set_missing = |bits: &u32| one.lacks(set(*bits).fold(0, |sum, (_, amount)| sum.saturating_add(amount)));
    let mut missing: Vec<u32> = (1..(1_u32 << amounts.len()) - 1).filter(is_set_missing).collect();
    // Larger sets that also fit are possible.
    let certainty = if missing.len() == 1 { Certainty::of_amount(one) } else { Certainty::Fitting };
    let fewest = missing.iter().map(|bits| bits.count_ones()).min()?;
    missing.retain(|bits| bits.count_ones() == fewest);
    match missing.as_slice() {
        [one] => Some((certainty, set(*one).map(|(operation, _)| operation).collect())),
        _ => None,
    }
}

/// The missing amount, if it is exactly the first call of each key. Keys are the truth's shares
/// without processes, or else only operations.
fn first_calls(figure: &ReportedFigure, one: &NumberComparison<'_>) -> Option<u64> {
    let mut shares: BTreeMap<_, (u64, Option<u64>)> = BTreeMap::new();
    for share in one.subject.shares.iter().filter(|share| share.calls > 0) {
        let key = (&share.cgroup, &share.mount, share.is_file, share.operation);
        let (calls, amount) = shares.entry(key).or_insert((0, Some(0)));
        *calls = calls.saturating_add(share.calls);
        *amount = amount.zip(share.amount(figure.unit)).map(|(sum, more)| sum.saturating_add(more));
    }
    // If no operation was done twice, the first calls are all that happened.
    let twice = |operation: &&Operation| matches!(one.subject.of(**operation, CountedUnit::Calls), 0 | 2..);
    if shares.is_empty() || !figure.operations.iter().all(|operation| twice(&operation)) {
        return None;
    }
    let by_shares = shares.values().all(|(calls, _)| *calls > 1);
    // Size of a call if all calls can have had the same size.
    let of_one_call = |amount: u64, calls: u64| amount.is_multiple_of(calls).then(|| amount / calls);
    let by_share: Option<u64> = by_shares
        .then_some(())
        .and_then(|()| shares.values().map(|&(calls, amount)| of_one_call(amount?, calls)).sum());
    let by_operation: Option<u64> = figure
        .operations
        .iter()
        .filter_map(|&operation| match one.subject.of(operation, CountedUnit::Calls) {
            0 => None,
            calls => Some(of_one_call(one.subject.of(operation, figure.unit), calls)),
        })
        .sum();
    let fits = |lost: &u64| figure.unit != CountedUnit::Errors && *lost > 0 && one.lacks(*lost);
    by_share.filter(fits).or_else(|| by_operation.filter(fits))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first call of each key is not counted.

use bpfassay_protocol::Operation;

use crate::{
    ReportedFigure, Unit,
    finding::{
        certainty::Certainty,
        comparison::{Comparison, shown},
        definition::Definition,
        figures::{Differences, Tally},
        parts,
    },
};

pub(super) const FINDING: Definition = Definition {
    name: "first-touch-lost",
    explanation: "Of every operation that a subject did, exactly one call is missing, or the bytes of one call of average size: what the first call of a new key does is lost. Not evaluated where no subject did more than one call of an operation.",
    explain: Some(explain),
    evaluate: |known| known.of_all_figures("nothing that it reports was done more than once", Vec::new()),
};

fn explain(tally: &mut Tally, differences: &mut Differences<'_>) {
    for one in &mut differences.comparisons {
        tally.evaluated |= one.subject.shares.iter().any(|share| share.calls > 1);
        if one.is_too_low()
            && let Some(lost) = first_touch(differences.figure, one)
        {
            // Any other call of that size would look the same.
            tally.evidence.push(Certainty::Fitting.line(lost));
            one.explained = true;
        }
    }
}

/// Whether exactly the first call of each key is missing. Keys are the truth's shares, or coarser: the operations.
fn first_touch(figure: &ReportedFigure, one: &Comparison<'_>) -> Option<String> {
    let shares: Vec<_> = one.subject.shares.iter().filter(|share| share.calls > 0).collect();
    // Where nothing was done twice, what is missing is all that happened.
    let twice = |operation: &&Operation| matches!(one.subject.of(**operation, Unit::Calls), 0 | 2..);
    if shares.is_empty() || !figure.operations.iter().all(|operation| twice(&operation)) {
        return None;
    }
    let by_shares = shares.iter().all(|share| share.calls > 1);
    // A call of average size, where all may have had the same.
    let of_one_call = |amount: u64, calls: u64| amount.is_multiple_of(calls).then(|| amount / calls);
    let by_share: Option<u64> = by_shares
        .then_some(())
        .and_then(|()| shares.iter().map(|share| of_one_call(share.amount(figure.unit)?, share.calls)).sum());
    let by_operation: Option<u64> = figure
        .operations
        .iter()
        .filter_map(|&operation| match one.subject.of(operation, Unit::Calls) {
            0 => None,
            calls => Some(of_one_call(one.subject.of(operation, figure.unit), calls)),
        })
        .sum();
    let fits = |lost: &u64| figure.unit != Unit::Errors && *lost > 0 && one.lacks(*lost);
    let lost = by_share.filter(fits).or_else(|| by_operation.filter(fits))?;
    let others: String = parts::missing(figure, one).into_iter().map(|part| format!(", or {part}")).collect();
    Some(format!("{}: {lost} less, as much as the first calls{others}", shown(figure, one)))
}

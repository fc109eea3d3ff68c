// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first call of each key is not counted.

use bpfassay_protocol::Operation;

use crate::{
    ReportedFigure, Unit,
    finding::{
        definition::Definition,
        figures::{Comparison, Differences, Tally, shown},
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
        if let Some(lost) = first_touch(differences.figure, one) {
            tally.evidence.push(lost);
            one.explained = true;
        }
    }
}

/// Whether exactly the first call of each key is missing. Keys are the truth's shares, or coarser: the operations.
fn first_touch(figure: &ReportedFigure, one: &Comparison<'_>) -> Option<String> {
    let deficit = one.deficit()?;
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
    let fits = |lost: Option<u64>| lost.is_some_and(|lost| lost > 0 && lost.abs_diff(deficit) <= one.slack);
    let is_error = figure.unit == Unit::Errors;
    (!is_error && (fits(by_share) || fits(by_operation)))
        .then(|| format!("{}: {deficit} less, as much as the first calls", shown(figure, one)))
}

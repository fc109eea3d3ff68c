// SPDX-License-Identifier: MIT OR Apache-2.0
//! An operation that no figure, or not the right one, counts.

use std::collections::BTreeMap;

use bpfassay_protocol::Operation;

use crate::{
    Report, ReportedFigure, Unit,
    finding::{
        certainty::Certainty,
        comparison::{Comparison, shown},
        definition::{Definition, Known},
        figures::{Differences, NONE, Tally},
        missed::shown_of_others,
        parts,
        status::FindingStatus,
        truth::Truth,
    },
};

pub(super) const FINDING: Definition = Definition {
    name: "operations-not-seen",
    explanation: "An operation happened that the tool reports no figure of, or of which its figure stayed at 0 for all that did it, or the fewest operations whose shares are exactly what a figure over several lacks, where these are certain. Not evaluated without a figure that can be compared.",
    explain: Some(explain),
    evaluate,
};

fn explain(tally: &mut Tally, differences: &mut Differences<'_>) {
    // What is reported of others is seen: there a subject is missed, for which see counts-too-low.
    let is_missed = |one: &Comparison<'_>| !shown_of_others(differences, one).is_empty();
    let missed: Vec<bool> = differences.comparisons.iter().map(is_missed).collect();
    for (one, is_missed) in differences.comparisons.iter_mut().zip(missed) {
        tally.evaluated |= one.expected > 0;
        if is_missed {
            continue;
        }
        if let Some((mut certainty, unseen)) = unseen(differences.figure, one) {
            // A misspelt name looks like that as well.
            let is_there = differences.readings.samples.iter().any(|sample| sample.figure == differences.index);
            let hint = if is_there {
                ""
            } else {
                certainty = Certainty::Bounded;
                "; no report has this figure: compare its name with the tool's output"
            };
            tally.evidence.push(certainty.line(unseen + hint));
            one.explained = true;
        }
    }
}

fn evaluate(known: &Known<'_>) -> FindingStatus {
    let reported = known.reported().ok().zip(known.evidence.truth);
    let unreported = reported.map(|((report, _), truth)| unreported(report, truth)).unwrap_or_default();
    known.of_all_figures(NONE, Certainty::Proven.lines(unreported))
}

/// Of more operations in one figure, what is missing is not attributed to several of them: sets of so many fit by chance.
const MOST_OPERATIONS: usize = 12;

/// Operations that a figure does not see.
fn unseen(figure: &ReportedFigure, one: &Comparison<'_>) -> Option<(Certainty, String)> {
    if !one.is_too_low() {
        return None;
    }
    let happened = |operation: &&Operation| one.subject.of(**operation, figure.unit) > 0;
    let operations: Vec<_> = figure.operations.iter().filter(happened).collect();
    if one.reported == 0 {
        let names = operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(", ");
        return Some((Certainty::Proven, format!("{}: nothing of {names}", shown(figure, one))));
    }
    let (certainty, lacking) = lacking(&operations, figure, one)?;
    let names = lacking.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(" and ");
    // What else is as much.
    let mut parts = parts::missing(figure, one);
    parts.retain(|part| !part.starts_with("operation "));
    let (certainty, parts) = match parts.is_empty() {
        true => (certainty, String::new()),
        false => (Certainty::Fitting, format!("; as much as {}", parts.join(", or "))),
    };
    Some((certainty, format!("{}: what is missing is exactly {names}{parts}", shown(figure, one))))
}

/// The fewest of `operations`, but not all, whose amounts together are missing; `None` where there are none, or several such sets: then it is not
/// known which.
fn lacking(
    operations: &[&Operation],
    figure: &ReportedFigure,
    one: &Comparison<'_>,
) -> Option<(Certainty, Vec<Operation>)> {
    let with_amount = |operation: Operation| (operation, one.subject.of(operation, figure.unit));
    let amounts: Vec<(Operation, u64)> = operations.iter().map(|&&of| with_amount(of)).take(MOST_OPERATIONS).collect();
    let set = |bits: u32| amounts.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1).map(|(_, one)| *one);
    let is_set_missing = |bits: &u32| one.lacks(set(*bits).fold(0, |sum, (_, amount)| sum.saturating_add(amount)));
    let mut missing: Vec<u32> = (1..(1_u32 << amounts.len()) - 1).filter(is_set_missing).collect();
    // Larger sets that fit as well are possible.
    let certainty = if missing.len() == 1 { Certainty::of_amount(one) } else { Certainty::Fitting };
    let fewest = missing.iter().map(|bits| bits.count_ones()).min()?;
    missing.retain(|bits| bits.count_ones() == fewest);
    match missing.as_slice() {
        [one] => Some((certainty, set(*one).map(|(operation, _)| operation).collect())),
        _ => None,
    }
}

/// Ways that data went that no figure counts, though others of the same direction are reported.
fn unreported(report: &Report, truth: &Truth) -> Vec<String> {
    if !truth.units.contains(&Unit::BytesReturned) {
        return Vec::new();
    }
    let listed = |operation| report.figures.iter().any(|figure| figure.operations.contains(&operation));
    let mut missing = BTreeMap::new();
    for share in &truth.shares {
        let Some(direction) = share.operation.direction() else { continue };
        let reported = |figure: &ReportedFigure| {
            (share.is_file || !figure.only_files)
                && figure.operations.iter().any(|of| of.direction() == Some(direction))
        };
        if !listed(share.operation) && report.figures.iter().any(reported) {
            let (calls, bytes) = missing.entry(share.operation).or_insert((0_u64, 0_u64));
            *calls = calls.saturating_add(share.calls);
            *bytes = bytes.saturating_add(share.bytes_returned.unwrap_or(0));
        }
    }
    let missing = missing.into_iter().filter(|(_, amounts)| *amounts != (0, 0));
    missing
        .map(|(operation, (calls, bytes))| format!("no figure counts {operation}: {calls} calls, {bytes} bytes"))
        .collect()
}

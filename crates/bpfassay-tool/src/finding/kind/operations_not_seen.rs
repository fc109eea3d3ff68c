// SPDX-License-Identifier: MIT OR Apache-2.0
//! No figure counts an operation, or the wrong figure does.

use std::collections::BTreeMap;

use bpfassay_protocol::{Operation, checked_prototype::Checked};

use crate::{
    file::{CountedUnit, Report, ReportedFigure},
    finding::{
        candidates::{Candidates, Unseen, names},
        certainty::Certainty,
        definition::{Definition, KindInputs},
        finding_comparison::{NumberComparison, shown},
        finding_figures::{Differences, EvidenceTally, NONE},
        finding_source::EVERY_FIGURE,
        flags, left_out,
        missed::shown_of_others,
        status::FindingStatus,
        truth::Truth,
    },
};

pub(super) const FINDING: Definition = Definition {
    name: "operations-not-seen",
    explanation: "An operation happened that the tool reports no figure of, or of which its figure stayed at 0 for all that did it, or the fewest operations whose shares are exactly what a figure over several lacks, where nothing else that is known of is as much, or a variant of an operation, as fdatasync is of fsync; of vectored calls, but for their flags, where a program takes those for what a call returned. Not evaluated where one of its figures could not be compared.",
    sources: EVERY_FIGURE,
    clear: "each operation of its figures is in them, and none of their direction is without a figure",
    explain: Some(explain),
    evaluate,
};

fn explain(tally: &mut EvidenceTally, differences: &mut Differences<'_>) {
    // If other subjects report the operation, the subject is missed; see counts-too-low.
    let is_missed = |one: &NumberComparison<'_>| !shown_of_others(differences, one).is_empty();
    let missed: Vec<bool> = differences.comparisons.iter().map(is_missed).collect();
    let Differences { readings, prototypes, figure, index, comparisons, .. } = differences;
    for (one, is_missed) in comparisons.iter_mut().zip(missed) {
        tally.evaluated |= one.expected > 0;
        if is_missed {
            continue;
        }
        if let Some((mut certainty, unseen)) = unseen(prototypes, figure, one) {
            // A misspelt label value has the same effect.
            let is_there = readings.samples.iter().any(|sample| sample.figure == *index);
            let hint = if is_there {
                String::new()
            } else {
                certainty = Certainty::Bounded;
                let absent = readings.absent.iter().find(|one| one.figure == *index);
                let (what, nearest) = absent.map_or(("this figure", ""), |one| (&one.what, &one.nearest));
                format!("; no report has {what}: compare the tool file with the tool's output{nearest}")
            };
            tally.evidence.push(certainty.line(unseen + &hint));
            one.explained = true;
        }
    }
}

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let reported = known.reported().ok().zip(known.evidence.truth);
    let unreported = reported.map(|((report, _), truth)| unreported(report, truth));
    let is_known = matches!(unreported, None | Some(Some(_)));
    match known.of_figures(NONE, Certainty::Proven.lines(unreported.flatten().unwrap_or_default())) {
        FindingStatus::Clear if !is_known => FindingStatus::not_evaluated(ENTRIES),
        status => status,
    }
}

/// Describes operations that a figure does not see.
fn unseen(prototypes: &[Checked], figure: &ReportedFigure, one: &NumberComparison<'_>) -> Option<(Certainty, String)> {
    if !one.is_too_low() || one.accounted > 0 {
        return None;
    }
    let why = |operations: &[Operation]| flags::reason(prototypes, figure, operations);
    let shown = shown(figure, one);
    if one.reported == 0 {
        let happened = |operation: &Operation| one.subject.of(*operation, figure.unit) > 0;
        let operations: Vec<Operation> = figure.operations.iter().copied().filter(happened).collect();
        let names = operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(", ");
        let only = left_out::only(figure, one);
        return Some((Certainty::Proven, format!("{shown}: nothing of {names}{only}{}", why(&operations))));
    }
    let candidates = Candidates::of(figure, one);
    if let Some((certainty, missing)) = candidates.variants() {
        return Some((certainty, format!("{shown}: {missing}")));
    }
    if let Some(Unseen { certainty, operations, phases }) = candidates.operations() {
        let names = names(operations);
        let text = format!("{shown}: what is missing is exactly {names}{}{phases}", why(operations));
        return Some((certainty, text));
    }
    // The prototypes show this cause even if other causes fit.
    let missing = flags::missing(prototypes, figure, one)?;
    Some((Certainty::Fitting, format!("{shown}: {missing}{}", candidates.shown())))
}

const ENTRIES: &str = "the reference tracer counts what calls ask for: ways that data went are compared beside another";

/// Operations that no figure counts, although figures count others of the same direction. `None` if
/// the truth does not know what moved.
fn unreported(report: &Report, truth: &Truth) -> Option<Vec<String>> {
    if !truth.units.contains(&CountedUnit::BytesReturned) {
        return None;
    }
    let listed = |operation| report.figures.iter().any(|figure| figure.operations.contains(&operation));
    let mut missing = BTreeMap::new();
    for share in &truth.shares {
        let Some(direction) = share.operation.direction() else { continue };
        let reported = |figure: &ReportedFigure| {
            share.is_on(figure) == Some(true) && figure.operations.iter().any(|of| of.direction() == Some(direction))
        };
        if !listed(share.operation) && report.figures.iter().any(reported) {
            let (calls, bytes) = missing.entry(share.operation).or_insert((0_u64, 0_u64));
            *calls = calls.saturating_add(share.calls);
            *bytes = bytes.saturating_add(share.bytes_returned.unwrap_or(0));
        }
    }
    let missing = missing.into_iter().filter(|(_, amounts)| *amounts != (0, 0));
    let shown = |(operation, (calls, bytes))| format!("no figure counts {operation}: {calls} calls, {bytes} bytes");
    Some(missing.map(shown).collect())
}

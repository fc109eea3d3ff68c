// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool counts less than happened, for an unknown reason.

use crate::{
    file::{CountedUnit, ReportedFigure},
    finding::{
        candidates::Candidates,
        certainty::Certainty,
        course::of_its_map,
        definition::Definition,
        finding_comparison::{NumberComparison, shown},
        finding_figures::{Differences, EvidenceTally, NONE},
        finding_source::EVERY_FIGURE,
        missed::shown_of_others,
    },
};

/// Largest error number of Linux: `EHWPOISON`.
const MAX_ERRNO: i128 = 133;

pub(super) const FINDING: Definition = Definition {
    name: "counts-too-low",
    explanation: "It counted less than happened, also less than what it may leave out, and none of the findings before explains it. Where what is missing is exactly the calls that failed, these are named; where it is what an operation, mount, cgroup, process or phase of the workload did, or as much as the first calls of keys, all that fit are shown, and so is a mount, cgroup or process that it has nothing of, though it counts what that did. A sum of return values may be negative: each failed call adds a negative number. Not evaluated where one of its figures could not be compared.",
    sources: EVERY_FIGURE,
    clear: "no figure lacks more than other findings explain",
    explain: Some(explain),
    evaluate: |known| known.of_figures(NONE, Vec::new()),
};

fn explain(tally: &mut EvidenceTally, differences: &mut Differences<'_>) {
    tally.evaluated |= !differences.comparisons.is_empty();
    for one in differences.comparisons.iter().filter(|one| !one.explained) {
        if let Some(negative) = one.negative() {
            let less = i128::from(one.expected) - i128::from(negative);
            let text = shown(differences.figure, one) + &format!(": negative, {less} less");
            tally.evidence.push(Certainty::Proven.line(text + &errors(differences.figure, one)));
        }
    }
    for one in differences.comparisons.iter().filter(|one| one.is_too_low()) {
        let as_much = errors(differences.figure, one) + &Candidates::of(differences.figure, one).shown();
        let as_much = as_much + &of_its_map(differences.report, differences.index, differences.kernel);
        let missed = missed(differences, one).unwrap_or_default();
        tally.evidence.push(Certainty::Bounded.line(shown(differences.figure, one) + &missed + &as_much));
    }
}

/// Says whether failed calls explain the amount missing from a sum of return values. Each failed
/// call adds a negative number.
fn errors(figure: &ReportedFigure, one: &NumberComparison<'_>) -> String {
    let sum = one.negative().map_or_else(|| i128::from(one.reported), i128::from);
    let missing = i128::from(one.expected) - sum;
    let failed = one.subject.total(CountedUnit::Errors).map_or(0, i128::from);
    let is_sum = figure.unit == CountedUnit::BytesReturned && one.at_least == one.at_most && one.slack == 0;
    match missing.checked_rem(failed) {
        Some(0) if is_sum && (1..=MAX_ERRNO).contains(&(missing / failed)) => {
            let errno = missing / failed;
            format!("; as much as {failed} failed calls that returned -{errno}")
        }
        _ => String::new(),
    }
}

/// Describes a subject that is not reported, although the figure counts its operations elsewhere.
fn missed(differences: &Differences<'_>, one: &NumberComparison<'_>) -> Option<String> {
    let operations = shown_of_others(differences, one);
    let names = operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(", ");
    (!operations.is_empty())
        .then(|| format!(": nothing of this {}, though {names} of others is reported", differences.figure.whose.name()))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of a tool file that no report has. They are evidence against the tool file and not against
//! the tool.

use super::{
    certainty::{Certainty, EvidenceLine},
    finding_comparison::NumberComparison,
};
use crate::{
    file::ReportedFigure,
    readings::{AbsentName, Readings},
};

/// Names that no report has.
#[derive(Debug, Default)]
pub(super) struct Absence {
    /// Names whose operations happened: evidence against the tool file.
    pub(super) absent: Vec<EvidenceLine>,
    /// Names whose operations are not known to have happened.
    pub(super) open: Vec<String>,
}

/// Describes a missing name if nothing that its figure counts is known to have happened. The name
/// could appear with the first event.
pub(super) fn open(one: &AbsentName) -> String {
    let AbsentName { what, nearest, .. } = one;
    format!(
        "no report has {what}{nearest}: nothing that it counts is known to have happened, so whether the tool file is right is open"
    )
}

/// Checks that reports have the names of `figure` (index `index`), unless nothing that it counts is
/// certain to have happened. Records missing names in `absence`. A missing label value is not an
/// error, because the tool possibly cannot see that value.
///
/// # Errors
/// The first missing name.
pub(super) fn check(
    index: usize,
    figure: &ReportedFigure,
    readings: &Readings,
    comparisons: &[NumberComparison<'_>],
    absence: &mut Absence,
) -> Result<(), String> {
    let of_figure = || readings.absent.iter().filter(|one| one.figure == index);
    // An amount that rounding can hide is not certain to appear.
    let happened = comparisons.iter().filter(|one| one.at_least > one.slack).map(|one| one.at_least);
    let happened = happened.fold(0_u64, u64::saturating_add);
    if happened == 0 {
        absence.open.extend(of_figure().map(open));
        return Ok(());
    }
    let names: Vec<&AbsentName> = of_figure().filter(|one| !one.is_value).collect();
    let operations = figure.operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join("+");
    let mut lacking = None;
    for AbsentName { what, nearest, .. } in &names {
        let counted = format!("({operations}, {})", figure.unit.name());
        let text = format!("no report has {what}, though {happened} of it happened {counted}{nearest}");
        lacking.get_or_insert_with(|| text.clone());
        absence.absent.push(Certainty::Bounded.line(text));
    }
    lacking.map_or(Ok(()), Err)
}

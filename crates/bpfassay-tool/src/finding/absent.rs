// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of a tool file that no report has: the tool is accused of nothing by such a figure, and
//! the tool file is not passed in silence.

use super::{
    certainty::{Certainty, Line},
    comparison::Comparison,
};
use crate::{Readings, ReportedFigure, readings::Absent};

/// Names that no report has.
#[derive(Debug, Default)]
pub(super) struct Absence {
    /// Those of what happened: evidence against the tool file.
    pub(super) absent: Vec<Line>,
    /// The same where nothing of it is known to have happened.
    pub(super) open: Vec<String>,
}

/// What to report of `one` where nothing that its figure counts is known to have happened: what it
/// names may come with the first event.
pub(super) fn open(one: &Absent) -> String {
    let Absent { what, nearest, .. } = one;
    format!(
        "no report has {what}{nearest}: nothing that it counts is known to have happened, so whether the tool file is right is open"
    )
}

/// Checks that reports have what `figure`, which is number `index`, names, or nothing of it had to
/// be there; what they lack is recorded in `absence`. A label without its value from the tool file
/// is left to the tool: it may not see what has this value.
///
/// # Errors
/// What they lack first.
pub(super) fn check(
    index: usize,
    figure: &ReportedFigure,
    readings: &Readings,
    comparisons: &[Comparison<'_>],
    absence: &mut Absence,
) -> Result<(), String> {
    let of_figure = || readings.absent.iter().filter(|one| one.figure == index);
    // What rounding down can make nothing of is not certain to be there.
    let happened = comparisons.iter().filter(|one| one.at_least > one.slack).map(|one| one.at_least);
    let happened = happened.fold(0_u64, u64::saturating_add);
    if happened == 0 {
        absence.open.extend(of_figure().map(open));
        return Ok(());
    }
    let names: Vec<&Absent> = of_figure().filter(|one| !one.is_value).collect();
    let operations = figure.operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join("+");
    let mut lacking = None;
    for Absent { what, nearest, .. } in &names {
        let counted = format!("({operations}, {})", figure.unit.name());
        let text = format!("no report has {what}, though {happened} of it happened {counted}{nearest}");
        lacking.get_or_insert_with(|| text.clone());
        absence.absent.push(Certainty::Bounded.line(text));
    }
    lacking.map_or(Ok(()), Err)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Explains the marks in cells of the screen.

use bpfassay_study::Clock;

use super::{
    super::{
        plain::{ends, line},
        table::Remarks,
    },
    below::first,
    cell::{NO_INTERVAL, NOISE, REQUESTED, ShownCell},
};
use bpfassay_results::Results;

const MOST: usize = 8;
/// The longest remark, in characters.
const LONGEST: usize = 200;

pub(super) fn lines(remarks: &Remarks) -> Vec<String> {
    let numbered = |(index, remark): (usize, &String)| format!("[{}] {}", index + 1, ends(remark, LONGEST));
    first(remarks.0.iter().enumerate().map(numbered).collect(), MOST, "remarks")
}

/// Explains the marks that occur in `cells`.
pub(super) fn legend<'a>(results: &Results, cells: impl Iterator<Item = &'a ShownCell>) -> Vec<String> {
    let mut has = [false; 3];
    let mut has_overheads = false;
    for cell in cells {
        let any = |is: &dyn Fn(&str) -> bool| cell.overheads.iter().any(|text| is(text));
        has_overheads |= any(&|text| text.contains('%'));
        let found =
            [cell.counts.ends_with(REQUESTED), any(&|text| text == NOISE), any(&|text| text.ends_with(NO_INTERVAL))];
        has.iter_mut().zip(found).for_each(|(has, found)| *has |= found);
    }
    let marks = [
        "[r] counts what callers request, not what calls return",
        "noise: the overhead's 95 % interval includes 0, or it lies within the noise floor",
        "?: the overhead has no interval, because it was observed once",
    ];
    let mut lines: Vec<String> =
        marks.iter().zip(has).filter(|(_, has)| *has).map(|(mark, _)| (*mark).to_owned()).collect();
    if has_overheads && results.plan.study.clock == Clock::Instructions {
        lines.push("overheads count instructions, not time: docs/explanation/clocks.md".to_owned());
    }
    lines.iter().map(|text| line(text).into_owned()).collect()
}

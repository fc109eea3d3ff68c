// SPDX-License-Identifier: MIT OR Apache-2.0
//! Explains the marks in cells of the matrix.

use bpfassay_study::Clock;

use super::{
    super::{plain::ends, table::Remarks},
    Column, FrontPlace,
    below::more_of,
    cell::{NO_INTERVAL, NOISE, REQUESTED},
};
use bpfassay_results::Results;

/// The longest remark, in characters.
const LONGEST: usize = 200;

/// Returns remarks with their marks, and how many more there are.
pub(super) fn lines(remarks: &Remarks, place: &FrontPlace) -> (Vec<[String; 2]>, Option<String>) {
    let numbered = |(number, remark): (usize, &String)| [format!("[{number}]"), ends(remark, LONGEST)];
    let more = remarks.0.len().saturating_sub(place.most_remarks);
    let shown = (1..).zip(&remarks.0).take(place.most_remarks).map(numbered);
    (shown.collect(), more_of(more, "remarks", place))
}

/// Explains the marks that occur in cells, and what overheads count.
pub(super) fn legend(results: &Results, columns: &[Column]) -> (Vec<[String; 2]>, Option<String>) {
    let any =
        |is: &dyn Fn(&str) -> bool| columns.iter().flat_map(|column| &column.cells).any(|cell| is(cell.text.as_str()));
    let has_overheads = any(&|text| text.contains('%'));
    let marks = [
        (any(&|text| text.ends_with(REQUESTED)), [REQUESTED, "counts what callers request, not what calls return"]),
        (
            any(&|text| text == NOISE),
            ["noise:", "the overhead's 95 % interval includes 0, or it lies within the noise floor"],
        ),
        (
            any(&|text| text.ends_with(&format!("%{NO_INTERVAL}"))),
            ["?:", "the overhead has no interval, because it was observed once"],
        ),
    ];
    let shown = marks.into_iter().filter(|(has, _)| *has).map(|(_, texts)| texts.map(str::to_owned));
    let of_clock = has_overheads && results.plan.study.clock == Clock::Instructions;
    (shown.collect(), of_clock.then(|| "overheads count instructions, not time: docs/explanation/clocks.md".to_owned()))
}

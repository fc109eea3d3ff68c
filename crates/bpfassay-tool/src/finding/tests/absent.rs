// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of the tool file that no report has.

use super::*;
use crate::readings::AbsentName;

fn absent(what: &str, is_value: bool) -> AbsentName {
    AbsentName { figure: 0, what: what.to_owned(), is_value, nearest: "; did you mean `reads`?".to_owned() }
}

fn read() -> Truth {
    truth(vec![share("a", "m", Operation::Read, 4, 400, 400), share("a", "m", Operation::Write, 7, 70, 70)])
}

/// Evaluates a tool with two figures. The first is missing from reports as `one` says, and the
/// second is exact.
fn of(one: &AbsentName, truth: &Truth) -> Vec<FindingResult> {
    let operations = [Operation::Read, Operation::Write];
    let figures =
        [figure(&operations[..1], CountedUnit::Calls, Whose::System), figure(&operations, MOVED, Whose::System)];
    let bytes: u64 = truth.shares.iter().filter_map(|share| share.bytes_returned).sum();
    let readings = Readings { absent: vec![one.clone()], ..readings(&[(100, 1, None, bytes)]) };
    counts(&report(figures.to_vec()), &readings, truth)
}

/// The name is misspelt, or the tool does not see the operations. The tool is not blamed.
#[test]
fn a_name_that_no_report_has_is_found_of_the_tool_file_where_what_it_counts_happened() {
    let results = of(&absent("`raeds`", false), &read());
    assert_eq!(found(&results), [Kind::Unreadable]);
    let evidence = evidence_of(&results, Kind::Unreadable);
    let expected = "no report has `raeds`, though 4 of it happened (read, calls); did you mean `reads`?";
    assert_eq!(evidence, expected);
    // Kinds that this figure could show are not clear.
    for kind in [Kind::CountsTooLow, Kind::CountsTooHigh, Kind::OperationsNotSeen, Kind::FirstTouchLost] {
        assert_eq!(reason(&results, kind), expected, "{kind}");
    }
}

/// Counters and map keys appear with the first event. Before that, a name is neither wrong nor
/// right.
#[test]
fn a_name_of_what_did_not_happen_is_open() {
    let nothing = truth(vec![share("a", "m", Operation::Write, 4, 400, 400)]);
    // The agent alone can have done it.
    let optional = Truth { optional: read().shares, ..read() };
    for (one, truth) in [
        (absent("`raeds`", false), &nothing),
        (absent("`op` = `raed` beside `calls`", true), &nothing),
        (absent("`raeds`", false), &optional),
    ] {
        let results = of(&one, truth);
        assert_eq!(found(&results), [], "{one:?}");
        let expected = format!("no report has {}; did you mean `reads`?: nothing that it counts is known", one.what);
        assert!(reason(&results, Kind::Unreadable).starts_with(&expected), "{results:?}");
        assert!(is_clear(&results, Kind::CountsTooLow), "{results:?}");
    }
    // The same holds without a truth.
    let figures = vec![figure(&[Operation::Read], MOVED, Whose::System)];
    let (report, readings) = (report(figures), Readings { absent: vec![absent("`raeds`", false)], ..readings(&[]) });
    let known = Evidence { report: Some(&report), readings: Some(&readings), ..Evidence::default() };
    assert!(reason(&evaluate(&known, &ValueLimits::default()), Kind::Unreadable).starts_with("no report has `raeds`"));
}

/// A tool with other values of a label possibly cannot see this value.
#[test]
fn a_label_s_value_that_no_report_has_is_of_what_the_tool_does_not_see() {
    let results = of(&absent("`op` = `raed` beside `calls`", true), &read());
    assert_eq!(found(&results), [Kind::OperationsNotSeen]);
    let evidence = evidence_of(&results, Kind::OperationsNotSeen);
    let hint = "nothing of read; no report has `op` = `raed` beside `calls`: compare the tool file with the tool's output; did you mean `reads`?";
    assert!(evidence.ends_with(hint), "{evidence}");
}

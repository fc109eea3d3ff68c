// SPDX-License-Identifier: MIT OR Apache-2.0
//! Variants of operations, by the rows of the reference tracer.

use bpfassay_protocol::operation::Variant;

use super::*;

/// Creates a row of the workload's calls of fsync. Reference tracers of earlier versions have no
/// variant.
fn fsync(variant: Option<Variant>, calls: u64, errors: u64) -> CounterRow {
    CounterRow {
        variant,
        totals: Totals { calls, bytes: 0, errors },
        ..row(CGROUP, 45, Some("/mnt"), Operation::Fsync, calls, 0)
    }
}

/// Evaluates a tool whose figure `figure` is `n`, for the calls of `rows`. Returns the findings and
/// why figures were not compared.
fn reported(figure: &str, rows: &[CounterRow], n: u64) -> (Vec<FindingResult>, Vec<String>) {
    // Half of the calls happened before.
    let half: Vec<CounterRow> = rows
        .iter()
        .map(|row| CounterRow { totals: Totals { calls: row.totals.calls / 2, bytes: 0, errors: 0 }, ..row.clone() })
        .collect();
    let first = OutputPiece { reference: beside(900, &half), ..piece(900, "{\"n\":0}\n", None) };
    let last = OutputPiece { reference: beside(2100, rows), ..piece(2100, &format!("{{\"n\":{n}}}\n"), None) };
    let (findings, beside) = of_run(&tool(figure), None, true, &figures(vec![first, last]));
    (findings, beside.not_compared.into_iter().map(|one| one.reason).collect())
}

const ALL: &str = "{ value = 'n', operations = 'fsync', unit = 'calls' }";
const ITSELF: &str = "{ value = 'n', operations = 'fsync', variants = 'fsync', unit = 'calls' }";

#[test]
fn variants_are_told_apart_from_report_to_report() {
    // Between the two reports there are 33 and 8 calls.
    let rows = [fsync(Some(Variant::Fsync), 66, 0), fsync(Some(Variant::Fdatasync), 16, 0)];
    assert_eq!(found(&reported(ALL, &rows, 41).0), []);
    let (findings, _) = reported(ALL, &rows, 33);
    assert_eq!(found(&findings), [Kind::OperationsNotSeen]);
    assert_eq!(
        evidence(&findings, Kind::OperationsNotSeen),
        "`n` (fsync, calls): 33, really 41: the 8 calls of fdatasync are missing"
    );
    assert_eq!(reported(ITSELF, &rows, 33), (reported(ALL, &rows, 41).0, vec![]));
    assert_eq!(found(&reported(ITSELF, &rows, 41).0), [Kind::CountsTooHigh]);
}

#[test]
fn failed_calls_are_named_and_left_out_as_successes() {
    let rows = [fsync(Some(Variant::Fsync), 82, 8)];
    let (findings, _) = reported(ALL, &rows, 33);
    assert_eq!(found(&findings), [Kind::CountsTooLow]);
    assert_eq!(
        evidence(&findings, Kind::CountsTooLow),
        "`n` (fsync, calls): 33, really 41: the 8 calls that failed are missing"
    );
    assert_eq!(found(&reported(&ALL.replace("calls", "successes"), &rows, 33).0), []);
}

#[test]
fn variants_of_records_that_do_not_have_them_are_compared_with_nothing() {
    let rows = [fsync(None, 82, 0)];
    let (findings, not_compared) = reported(ITSELF, &rows, 33);
    assert_eq!(found(&findings), []);
    assert_eq!(not_compared, ["the variant of 41 calls of `fsync` is not recorded"]);
    assert_eq!(found(&reported(ALL, &rows, 41).0), []);
}

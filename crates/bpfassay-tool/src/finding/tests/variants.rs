// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that a tool leaves out together: variants of operations, and failed calls.

use bpfassay_protocol::operation::Variant;

use super::*;

fn of(variant: Option<Variant>, operation: Operation, calls: u64, failed: u64) -> CallShare {
    CallShare { variant, errors: Some(failed), ..share("a", "m", operation, calls, 0, 0) }
}

/// Some calls of fsync and open.
///
/// - 33 calls of fsync and 8 of fdatasync
/// - 40 opens, of which 6 fail, and 3 opens by execve, of which 1 fails
fn shares() -> Vec<CallShare> {
    vec![
        of(Some(Variant::Fsync), Operation::Fsync, 33, 0),
        of(Some(Variant::Fdatasync), Operation::Fsync, 8, 0),
        of(Some(Variant::Open), Operation::Open, 40, 6),
        of(Some(Variant::Exec), Operation::Open, 3, 1),
    ]
}

fn happened() -> Truth {
    let phases = vec![("failed-fsync".to_owned(), vec![of(Some(Variant::Fsync), Operation::Fsync, 8, 0)])];
    Truth { phases, ..truth(shares()) }
}

/// The figure grows from 0 to `value` in the second of three reports.
fn all(value: u64) -> Readings {
    readings(&[(10, 0, None, 0), (50, 0, None, value), (100, 0, None, value)])
}

fn reported(figure: ReportedFigure, truth: &Truth, value: u64) -> Vec<FindingResult> {
    counts(&report(vec![figure]), &all(value), truth)
}

fn plain(operations: &[Operation], unit: CountedUnit) -> ReportedFigure {
    figure(operations, unit, Whose::System)
}

/// Returns the only finding and its evidence.
fn only(results: &[FindingResult]) -> (Kind, String) {
    let [kind] = found(results)[..] else { panic!("{:?}", found(results)) };
    (kind, evidence_of(results, kind))
}

#[test]
fn a_variant_that_is_missing_is_named_and_no_other_cause() {
    let fsync = reported(plain(&[Operation::Fsync], CountedUnit::Calls), &happened(), 33);
    let expected = "`v` (fsync, calls): 33, really 41: the 8 calls of fdatasync are missing";
    assert_eq!(only(&fsync), (Kind::OperationsNotSeen, expected.to_owned()));
    let fsync = reported(plain(&[Operation::Fsync], CountedUnit::Calls), &happened(), 8);
    assert!(only(&fsync).1.ends_with("8, really 41: the 33 calls of fsync itself are missing"), "{fsync:?}");
    let open = reported(plain(&[Operation::Open], CountedUnit::Successes), &happened(), 34);
    assert!(only(&open).1.ends_with("34, really 36: the 2 opens by execve are missing"), "{open:?}");
    let one =
        truth(vec![of(Some(Variant::Open), Operation::Open, 271, 0), of(Some(Variant::Exec), Operation::Open, 1, 0)]);
    let open = reported(plain(&[Operation::Open], CountedUnit::Calls), &one, 271);
    assert!(only(&open).1.ends_with("271, really 272: the 1 open by execve is missing"), "{open:?}");
    // Variants of both operations are missing.
    let both = reported(plain(&[Operation::Open, Operation::Fsync], CountedUnit::Calls), &happened(), 84 - 8 - 3);
    let (kind, evidence) = only(&both);
    let expected = "73, really 84: the 3 opens by execve and the 8 calls of fdatasync are missing";
    assert!(kind == Kind::OperationsNotSeen && evidence.ends_with(expected), "{evidence}");
    // Another amount matches no variant.
    let fsync = reported(plain(&[Operation::Fsync], CountedUnit::Calls), &happened(), 32);
    let expected = "`v` (fsync, calls): 32, really 41";
    assert_eq!(only(&fsync), (Kind::CountsTooLow, expected.to_owned()));
}

#[test]
fn failed_calls_that_are_missing_are_named() {
    let results = reported(plain(&[Operation::Open], CountedUnit::Calls), &happened(), 36);
    let expected = "`v` (open, calls): 36, really 43: the 7 calls that failed are missing";
    assert_eq!(only(&results), (Kind::CountsTooLow, expected.to_owned()));
    // The execve calls and the other failed calls.
    let results = reported(plain(&[Operation::Open], CountedUnit::Calls), &happened(), 34);
    let expected = "34, really 43: the 3 opens by execve and the 6 calls that failed are missing";
    let (kind, evidence) = only(&results);
    assert!(kind == Kind::CountsTooLow && evidence.ends_with(expected), "{evidence}");
}

#[test]
fn what_is_as_much_as_several_of_them_is_not_decided() {
    let same = truth(vec![
        of(Some(Variant::Fsync), Operation::Fsync, 33, 8),
        of(Some(Variant::Fdatasync), Operation::Fsync, 8, 0),
        of(None, Operation::Mkdir, 8, 0),
        of(None, Operation::Rmdir, 9, 0),
    ]);
    let results = reported(plain(&[Operation::Fsync], CountedUnit::Calls), &same, 33);
    let (kind, evidence) = only(&results);
    let expected = "33, really 41; as much as the 8 calls of fdatasync, or the 8 calls that failed";
    assert!(kind == Kind::CountsTooLow && evidence.ends_with(expected), "{evidence}");
    let three = [Operation::Fsync, Operation::Mkdir, Operation::Rmdir];
    let (kind, evidence) = only(&reported(plain(&three, CountedUnit::Successes), &same, 42));
    let expected = "42, really 50; as much as the 8 calls of fdatasync, or operation mkdir";
    assert!(kind == Kind::CountsTooLow && evidence.ends_with(expected), "{evidence}");
}

#[test]
fn what_was_all_of_a_variant_is_said_to_be() {
    let all = truth(vec![of(Some(Variant::Fdatasync), Operation::Fsync, 8, 0)]);
    let results = reported(plain(&[Operation::Fsync], CountedUnit::Calls), &all, 0);
    let expected = "`v` (fsync, calls): 0, really 8: nothing of fsync, which is the 8 calls of fdatasync";
    assert_eq!(only(&results), (Kind::OperationsNotSeen, expected.to_owned()));
}

#[test]
fn a_figure_of_some_variants_is_compared_with_these() {
    let by = |operation, variant, unit| ReportedFigure { variants: vec![variant], ..plain(&[operation], unit) };
    for (figure, right) in [
        (by(Operation::Fsync, Variant::Fsync, CountedUnit::Calls), 33),
        (by(Operation::Fsync, Variant::Fdatasync, CountedUnit::Calls), 8),
        (by(Operation::Open, Variant::Open, CountedUnit::Calls), 40),
        (by(Operation::Open, Variant::Open, CountedUnit::Successes), 34),
        (by(Operation::Open, Variant::Exec, CountedUnit::Errors), 1),
        // The variants of one operation do not limit another operation.
        (
            ReportedFigure {
                variants: vec![Variant::Fsync],
                ..plain(&[Operation::Fsync, Operation::Open], CountedUnit::Calls)
            },
            76,
        ),
    ] {
        let results = reported(figure.clone(), &happened(), right);
        assert_eq!(found(&results), [], "{figure:?}: {results:?}");
        assert!(is_clear(&results, Kind::CountsTooLow) && is_clear(&results, Kind::CountsTooHigh), "{results:?}");
        let results = reported(figure.clone(), &happened(), right + 1);
        assert_eq!(found(&results), [Kind::CountsTooHigh], "{figure:?}: {results:?}");
    }
    let (_, evidence) = only(&reported(by(Operation::Fsync, Variant::Fsync, CountedUnit::Calls), &happened(), 41));
    assert_eq!(evidence, "`v` (fsync by fsync, calls): 41, really 33; as much more as the 8 calls of fdatasync");
    let (_, evidence) = only(&reported(plain(&[Operation::Open], CountedUnit::Successes), &happened(), 43));
    assert!(evidence.ends_with("43, really 36; as much more as the 7 calls that failed"), "{evidence}");
}

/// Variants are unknown in records of earlier versions, and for io_uring requests.
#[test]
fn variants_that_are_not_recorded_are_compared_with_nothing() {
    let old = truth(vec![of(None, Operation::Fsync, 41, 0), of(None, Operation::Open, 43, 7)]);
    let some = ReportedFigure { variants: vec![Variant::Fsync], ..plain(&[Operation::Fsync], CountedUnit::Calls) };
    let results = reported(some.clone(), &old, 33);
    assert_eq!(found(&results), []);
    let why = "the variant of 41 calls of `fsync` is not recorded";
    assert_eq!([Kind::CountsTooLow, Kind::CountsTooHigh].map(|kind| reason(&results, kind)), [why; 2]);
    let not_compared = not_compared(&report(vec![some]), Some(&all(33)), Some(&old));
    assert_eq!(not_compared[0].figure, "`v` (fsync by fsync, calls)");
    // The operation as a whole is known.
    let results = reported(plain(&[Operation::Fsync], CountedUnit::Calls), &old, 33);
    assert_eq!(only(&results), (Kind::CountsTooLow, "`v` (fsync, calls): 33, really 41".to_owned()));
    assert_eq!(found(&reported(plain(&[Operation::Fsync], CountedUnit::Calls), &old, 41)), []);
}

/// Within the truth's bounds, an amount below the uncertainty is not named.
#[test]
fn a_variant_that_fits_within_bounds_is_less_sure() {
    let certainty = |truth: &Truth| {
        let results = reported(plain(&[Operation::Fsync], CountedUnit::Calls), truth, 33);
        match status(&results, Kind::OperationsNotSeen) {
            FindingStatus::Found { certainty, .. } => *certainty,
            _ => None,
        }
    };
    assert_eq!(certainty(&truth(shares())), Some(Certainty::Proven));
    assert_eq!(certainty(&happened()), Some(Certainty::Fitting));
    let earlier =
        |calls| Truth { earlier: vec![of(Some(Variant::Fsync), Operation::Fsync, calls, 0)], ..truth(shares()) };
    assert_eq!(certainty(&earlier(2)), Some(Certainty::Fitting));
    assert_eq!(certainty(&earlier(8)), None);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
use bpfassay_protocol::{
    Operation,
    tracer_messages::{Refusal, Step, Task},
};

mod absent;
mod certainty;
mod durations;
mod file_systems;
mod flags;
mod last_component;
mod properties;
mod shared_maps;
mod sources;
mod subjects;
mod variants;
mod without_figures;

use super::*;
use crate::{
    Stream,
    file::{CountedUnit, Counting, Report, ReportForm, ReportedFigure, Whose},
    readings::{Readings, ReportedSample},
};

fn share(cgroup: &str, mount: &str, operation: Operation, calls: u64, returned: u64, requested: u64) -> CallShare {
    CallShare {
        is_file: true,
        file_system: None,
        cgroup: vec![cgroup.to_owned(), format!("/{cgroup}")],
        mount: vec![mount.to_owned()],
        process: ProcessNames::from(&Task::new(7, 7, "ior")),
        operation,
        variant: None,
        calls,
        errors: Some(0),
        bytes_returned: Some(returned),
        bytes_requested: Some(requested),
    }
}

fn truth(shares: Vec<CallShare>) -> Truth {
    Truth {
        from_ns: 10,
        to_ns: 100,
        shares,
        is_whole_system: true,
        units: CountedUnit::ALL.to_vec(),
        ..Truth::default()
    }
}

fn figure(operations: &[Operation], unit: CountedUnit, whose: Whose) -> ReportedFigure {
    ReportedFigure {
        only_files: false,
        file_systems: Vec::new(),
        part: None,
        value: "v".to_owned(),
        labelled: [].into(),
        operations: operations.to_vec(),
        variants: Vec::new(),
        unit,
        scale: 1,
        whose,
        label: (whose != Whose::System).then(|| whose.name().to_owned()),
        counting: Counting::Cumulative,
        blank_is_zero: false,
        differs: None,
    }
}

fn report(figures: Vec<ReportedFigure>) -> Report {
    Report {
        form: ReportForm::Openmetrics { port: 1, path: "/".to_owned(), interval_ms: None },
        within_ms: None,
        excludes_itself: false,
        leaves_out: Vec::new(),
        lost: None,
        figures,
    }
}

/// Creates reports at 10, 50 and 100 ns. Samples are (time, figure, subject, value).
fn readings(samples: &[(u64, usize, Option<&str>, u64)]) -> Readings {
    let sample = |&(at_ns, figure, subject, value): &(u64, usize, Option<&str>, u64)| ReportedSample {
        at_ns,
        figure,
        subject: subject.map(str::to_owned),
        value,
    };
    Readings { samples: samples.iter().map(sample).collect(), reports: vec![10, 50, 100], ..Readings::default() }
}

fn counts(report: &Report, readings: &Readings, truth: &Truth) -> Vec<FindingResult> {
    let evidence =
        Evidence { report: Some(report), readings: Some(readings), truth: Some(truth), ..Evidence::default() };
    evaluate(&evidence, &ValueLimits::default())
}

fn found(results: &[FindingResult]) -> Vec<Kind> {
    let is_found = |result: &&FindingResult| matches!(result.status, FindingStatus::Found { .. });
    results.iter().filter(is_found).map(|result| result.kind).collect()
}

fn status(results: &[FindingResult], kind: Kind) -> &FindingStatus {
    &results.iter().find(|result| result.kind == kind).unwrap().status
}

fn evidence_of(results: &[FindingResult], kind: Kind) -> String {
    match status(results, kind) {
        FindingStatus::Found { evidence, .. } => evidence.join("\n"),
        other => panic!("{kind}: {other:?}"),
    }
}

fn reason(results: &[FindingResult], kind: Kind) -> &str {
    match status(results, kind) {
        FindingStatus::NotEvaluated { reason } => reason,
        other => panic!("{kind}: {other:?}"),
    }
}

fn is_clear(results: &[FindingResult], kind: Kind) -> bool {
    *status(results, kind) == FindingStatus::Clear
}

const MOVED: CountedUnit = CountedUnit::BytesReturned;

#[test]
fn nothing_that_was_not_measured_is_clear() {
    for result in evaluate(&Evidence::default(), &ValueLimits::default()) {
        assert!(matches!(result.status, FindingStatus::NotEvaluated { .. }), "{result:?}");
        let json = serde_json::to_string(&result).unwrap();
        assert!(json.contains(&format!("\"{}\"", result.kind.name())), "{json}");
    }
}

#[test]
fn operations_that_are_not_seen() {
    let truth = truth(vec![
        share("a", "m", Operation::Read, 4, 400, 400),
        share("a", "m", Operation::Readv, 3, 30, 30),
        share("a", "m", Operation::Write, 2, 20, 20),
    ]);
    let both = report(vec![figure(&[Operation::Read, Operation::Readv], MOVED, Whose::System)]);
    let results = counts(&both, &readings(&[(10, 0, None, 5), (50, 0, None, 405), (100, 0, None, 405)]), &truth);
    assert_eq!(found(&results), [Kind::OperationsNotSeen]);
    assert!(
        evidence_of(&results, Kind::OperationsNotSeen).contains("400, really 430: what is missing is exactly readv")
    );
    let results = counts(&both, &readings(&[]), &truth);
    assert_eq!(found(&results), [Kind::OperationsNotSeen]);
    assert!(evidence_of(&results, Kind::OperationsNotSeen).contains("nothing of read, readv"));
    // No figure has readv, though one has read. The tool does not claim to count writes.
    let one = report(vec![figure(&[Operation::Read], MOVED, Whose::System)]);
    let results = counts(&one, &readings(&[(100, 0, None, 400)]), &truth);
    assert_eq!(evidence_of(&results, Kind::OperationsNotSeen), "no figure counts readv: 3 calls, 30 bytes");
    let results = counts(&both, &readings(&[(100, 0, None, 430)]), &truth);
    assert!(is_clear(&results, Kind::OperationsNotSeen));
    let mut late = readings(&[(100, 0, None, 430)]);
    late.reports = vec![100];
    assert!(reason(&counts(&both, &late, &truth), Kind::OperationsNotSeen).contains("before the workload began"));
}

#[test]
fn requested_bytes_passed_off_as_moved_bytes() {
    let short = truth(vec![share("a", "m", Operation::Read, 4, 400, 512)]);
    let tool = report(vec![figure(&[Operation::Read], MOVED, Whose::System)]);
    let results = counts(&tool, &readings(&[(100, 0, None, 512)]), &short);
    assert_eq!(found(&results), [Kind::RequestedAsMoved]);
    assert!(evidence_of(&results, Kind::RequestedAsMoved).contains("512, really 400; 512 were requested"));
    assert!(is_clear(&counts(&tool, &readings(&[(100, 0, None, 400)]), &short), Kind::RequestedAsMoved));
    let whole = truth(vec![share("a", "m", Operation::Read, 4, 400, 400)]);
    let results = counts(&tool, &readings(&[(100, 0, None, 400)]), &whole);
    assert!(reason(&results, Kind::RequestedAsMoved).contains("moved less than they were asked to"));
    // A figure declared as requested bytes is correct.
    let honest = report(vec![figure(&[Operation::Read], CountedUnit::BytesRequested, Whose::System)]);
    assert!(found(&counts(&honest, &readings(&[(100, 0, None, 512)]), &short)).is_empty());
    // KiB values are rounded down in each report.
    let mut kib = figure(&[Operation::Read], MOVED, Whose::System);
    kib.scale = 1024;
    let rounded = truth(vec![share("a", "m", Operation::Read, 4, 3000, 9000)]);
    assert_eq!(
        found(&counts(&report(vec![kib.clone()]), &readings(&[(100, 0, None, 8192)]), &rounded)),
        [Kind::RequestedAsMoved]
    );
    assert!(found(&counts(&report(vec![kib]), &readings(&[(100, 0, None, 2048)]), &rounded)).is_empty());
}

#[test]
fn requested_bytes_by_phases_explain_the_whole() {
    let tool = report(vec![figure(&[Operation::Read], MOVED, Whose::System)]);
    let reported = readings(&[(50, 0, None, 512), (100, 0, None, 900)]);
    let phase = Truth { to_ns: 50, ..truth(vec![share("a", "m", Operation::Read, 4, 400, 512)]) };
    let requested = requested(&tool, &reported, &phase);
    assert_eq!(requested, [0].into());
    let mut whole = share("a", "m", Operation::Read, 9, 788, 0);
    whole.bytes_requested = None;
    let whole = truth(vec![whole]);
    let known = Evidence { report: Some(&tool), readings: Some(&reported), truth: Some(&whole), ..Evidence::default() };
    let evaluated = |known: Evidence<'_>| found(&evaluate(&known, &ValueLimits::default()));
    assert_eq!(evaluated(known), [Kind::CountsTooHigh]);
    assert_eq!(evaluated(Evidence { requested: Some(&requested), ..known }), []);
}

#[test]
fn counts_that_go_back_or_vanish() {
    let truth = truth(vec![share("a", "m", Operation::Read, 4, 400, 400), share("b", "m", Operation::Read, 4, 44, 44)]);
    let tool = report(vec![figure(&[Operation::Read], MOVED, Whose::Cgroup)]);
    let back = readings(&[(50, 0, Some("a"), 500), (100, 0, Some("a"), 400), (100, 0, Some("b"), 44)]);
    let results = counts(&tool, &back, &truth);
    assert_eq!(found(&results), [Kind::CountsGoBackwards]);
    assert_eq!(evidence_of(&results, Kind::CountsGoBackwards), "`v` of a: 500 at 50 ns, 400 at 100 ns");
    // The decrease explains its own amount. Amounts missing elsewhere, or in addition, are separate
    // findings.
    let less = readings(&[(50, 0, Some("a"), 300), (100, 0, Some("a"), 100), (100, 0, Some("b"), 44)]);
    assert_eq!(found(&counts(&tool, &less, &truth)), [Kind::CountsGoBackwards, Kind::CountsTooLow]);
    let evidence = evidence_of(&counts(&tool, &less, &truth), Kind::CountsTooLow);
    assert!(evidence.contains("100, really 400; 200 of what is missing went backwards"), "{evidence}");
    let less = [(50, 0, Some("a"), 300), (60, 0, Some("a"), 200), (80, 0, Some("a"), 400), (100, 0, Some("a"), 300)];
    let less = readings(&[&less[..], &[(100, 0, Some("b"), 44)]].concat());
    assert_eq!(found(&counts(&tool, &less, &truth)), [Kind::CountsGoBackwards]);
    let both = readings(&[(50, 0, Some("a"), 300), (100, 0, Some("a"), 200), (100, 0, Some("b"), 20)]);
    assert_eq!(found(&counts(&tool, &both, &truth)), [Kind::CountsGoBackwards, Kind::CountsTooLow]);
    // The map evicted `a`, which then started again from 0.
    let evicted = readings(&[(10, 0, Some("a"), 300), (100, 0, Some("a"), 400), (100, 0, Some("b"), 44)]);
    assert_eq!(found(&counts(&tool, &evicted, &truth)), [Kind::CountsVanish]);
    let evicted = readings(&[(10, 0, Some("a"), 100), (100, 0, Some("a"), 140), (100, 0, Some("b"), 44)]);
    let results = counts(&tool, &evicted, &truth);
    assert_eq!(found(&results), [Kind::CountsVanish, Kind::CountsTooLow]);
    assert!(evidence_of(&results, Kind::CountsTooLow).contains("40, really 400; 100 of what is missing vanished"));
    assert_eq!(evidence_of(&results, Kind::CountsVanish), "`v` of a: 100 at 10 ns, not there at 50 ns");
    let good = readings(&[(50, 0, Some("a"), 399), (100, 0, Some("a"), 400), (100, 0, Some("b"), 44)]);
    let results = counts(&tool, &good, &truth);
    assert!(
        found(&results).is_empty()
            && is_clear(&results, Kind::CountsVanish)
            && is_clear(&results, Kind::CountsGoBackwards)
    );
    let once = readings(&[(100, 0, Some("a"), 400), (100, 0, Some("b"), 44)]);
    assert!(reason(&counts(&tool, &once, &truth), Kind::CountsGoBackwards).contains("reported twice"));
    let lines = Report { form: ReportForm::JsonLines { stream: Stream::Stdout, ignore: None }, ..tool };
    assert!(reason(&counts(&lines, &good, &truth), Kind::CountsVanish).contains("line by line"));
}

#[test]
fn first_calls_and_other_calls_lost() {
    let truth = truth(vec![
        share("a", "m", Operation::Read, 4, 400, 400),
        share("a", "n", Operation::Read, 10, 100, 100),
        share("a", "n", Operation::Write, 7, 700, 700),
    ]);
    let of = |unit| report(vec![figure(&[Operation::Read, Operation::Write], unit, Whose::Cgroup)]);
    let results = |unit, value| counts(&of(unit), &readings(&[(100, 0, Some("a"), value)]), &truth);
    // One call of each of three keys, or of two if the key has no mount.
    for (unit, value) in [(CountedUnit::Calls, 18), (CountedUnit::Calls, 19), (MOVED, 990)] {
        assert_eq!(found(&results(unit, value)), [Kind::FirstTouchLost], "{value}");
    }
    // The same amount is also all calls on one of the mounts. The cause is then unknown, and all
    // are shown.
    let mut also = truth.clone();
    also.shares.push(share("a", "o", Operation::Read, 4, 0, 0));
    let lost = counts(&of(CountedUnit::Calls), &readings(&[(100, 0, Some("a"), 21)]), &also);
    assert_eq!(found(&lost), [Kind::CountsTooLow]);
    let evidence = evidence_of(&lost, Kind::CountsTooLow);
    let all = "21, really 25; as much as mount m, or mount o, or the first call of each key";
    assert!(evidence.ends_with(all), "{evidence}");
    assert!(is_clear(&results(CountedUnit::Calls, 21), Kind::FirstTouchLost));
    assert_eq!(found(&results(CountedUnit::Calls, 15)), [Kind::CountsTooLow]);
    assert!(evidence_of(&results(CountedUnit::Calls, 15), Kind::CountsTooLow).ends_with("of cgroup a: 15, really 21"));
    // The amount is that of one mount with two operations, one of which the other mount has, too.
    let results = counts(&of(MOVED), &readings(&[(100, 0, Some("a"), 400)]), &truth);
    assert_eq!(found(&results), [Kind::CountsTooLow]);
    assert!(evidence_of(&results, Kind::CountsTooLow).ends_with("400, really 1200; as much as mount n"), "{results:?}");
    let single = Truth { shares: vec![share("a", "m", Operation::Read, 1, 5, 5)], ..truth.clone() };
    let alone = counts(&of(CountedUnit::Calls), &readings(&[(100, 0, Some("a"), 1)]), &single);
    assert!(reason(&alone, Kind::FirstTouchLost).contains("more than once"));
}

#[test]
fn counts_too_low_and_too_high_and_events_dropped() {
    let mut truth = truth(vec![share("a", "m", Operation::Read, 4, 400, 400)]);
    let tool = report(vec![figure(&[Operation::Read], CountedUnit::Calls, Whose::System)]);
    let lost = |calls, lost| Readings { lost, ..readings(&[(100, 0, None, calls)]) };
    let results = |calls, events| counts(&tool, &lost(calls, events), &truth);
    assert_eq!(evidence_of(&results(4, Some(3)), Kind::EventsDropped), "it reports that it lost 3 events");
    assert!(is_clear(&results(4, Some(0)), Kind::EventsDropped) && is_clear(&results(4, Some(0)), Kind::CountsTooLow));
    // Lost events explain up to their number.
    assert_eq!(found(&results(1, Some(3))), [Kind::EventsDropped]);
    assert!(evidence_of(&results(1, Some(3)), Kind::EventsDropped).contains("1, really 4"));
    assert_eq!(found(&results(1, Some(1))), [Kind::EventsDropped, Kind::CountsTooLow]);
    // One event accounts for the bytes of one call.
    let bytes = report(vec![figure(&[Operation::Read], MOVED, Whose::System)]);
    let moved = |bytes_seen, events| {
        counts(&bytes, &Readings { lost: Some(events), ..readings(&[(100, 0, None, bytes_seen)]) }, &truth)
    };
    assert_eq!(found(&moved(350, 1)), [Kind::EventsDropped]);
    assert_eq!(found(&moved(150, 3)), [Kind::EventsDropped]);
    assert_eq!(found(&moved(250, 1)), [Kind::EventsDropped, Kind::CountsTooLow]);
    let evidence = evidence_of(&moved(250, 1), Kind::CountsTooLow);
    assert!(evidence.contains("250, really 400; 100 of what is missing is in events that it lost"), "{evidence}");
    // A missing amount does not imply lost events.
    assert_eq!(found(&results(1, None)), [Kind::CountsTooLow]);
    assert_eq!(reason(&results(1, None), Kind::EventsDropped), "its output has no place for lost events");
    let high = readings(&[(100, 0, None, 5)]);
    assert_eq!(found(&counts(&tool, &high, &truth)), [Kind::CountsTooHigh]);
    assert!(is_clear(&counts(&tool, &readings(&[(100, 0, None, 4)]), &truth), Kind::CountsTooHigh));
    // Other processes can have caused the excess.
    truth.is_whole_system = false;
    let results = counts(&tool, &high, &truth);
    assert!(found(&results).is_empty());
    assert!(reason(&results, Kind::CountsTooLow).contains("does not cover the whole system"));
    assert!(reason(&results, Kind::CountsTooHigh).contains("does not cover the whole system"));
    assert_eq!(found(&counts(&tool, &readings(&[(100, 0, None, 2)]), &truth)), [Kind::CountsTooLow]);
    let mut cut = readings(&[(100, 0, None, 4)]);
    cut.cut = true;
    truth.is_whole_system = true;
    assert!(reason(&counts(&tool, &cut, &truth), Kind::CountsTooLow).contains("not all that it reported"));
    // The missing amount can be in the part that was not read.
    cut.samples[0].value = 1;
    assert!(found(&counts(&tool, &cut, &truth)).is_empty());
}

/// Tools often count bytes by adding up return values, including errors.
#[test]
fn a_negative_sum_is_said_to_be_negative() {
    let failing = CallShare { errors: Some(22), ..share("a", "m", Operation::Read, 40, 300, 900) };
    let truth = truth(vec![failing, share("b", "m", Operation::Read, 4, 44, 44)]);
    let tool = report(vec![figure(&[Operation::Read], MOVED, Whose::Cgroup)]);
    let reported = |sum: i64| readings(&[(100, 0, Some("a"), sum.cast_unsigned()), (100, 0, Some("b"), 44)]);
    let results = counts(&tool, &reported(300 - 22 * 21), &truth);
    assert_eq!(found(&results), [Kind::CountsTooLow]);
    let evidence = evidence_of(&results, Kind::CountsTooLow);
    let expected = "of cgroup a: -162, really 300: negative, 462 less; as much as 22 failed calls that returned -21";
    assert!(evidence.ends_with(expected), "{evidence}");
    assert!(evidence_of(&counts(&tool, &reported(-7), &truth), Kind::CountsTooLow).ends_with("negative, 307 less"));
    // Such a sum can also be positive.
    let evidence = evidence_of(&counts(&tool, &reported(300 - 22 * 2), &truth), Kind::CountsTooLow);
    assert!(evidence.ends_with("256, really 300; as much as 22 failed calls that returned -2"), "{evidence}");
    // The value also decreased, if there was a report in between.
    let back =
        readings(&[(50, 0, Some("a"), 30), (100, 0, Some("a"), (-162_i64).cast_unsigned()), (100, 0, Some("b"), 44)]);
    let results = counts(&tool, &back, &truth);
    assert_eq!(found(&results), [Kind::CountsGoBackwards, Kind::CountsTooLow]);
    assert_eq!(evidence_of(&results, Kind::CountsGoBackwards), "`v` of a: 30 at 50 ns, -162 at 100 ns");
}

/// Operations just before or after a report are optional in the tool's counts.
#[test]
fn only_what_is_outside_the_bounds_of_the_truth_is_found() {
    let bounded = Truth {
        // At most 2 of the calls can be missing, and at most 3 can be additional.
        optional: vec![share("a", "m", Operation::Read, 2, 47, 47)],
        earlier: vec![share("a", "m", Operation::Read, 3, 176, 176)],
        ..truth(vec![share("a", "m", Operation::Read, 10, 1000, 1000), share("a", "m", Operation::Readv, 4, 400, 400)])
    };
    for whose in [Whose::System, Whose::Cgroup, Whose::Mount, Whose::Process] {
        let name = match whose {
            Whose::System => None,
            Whose::Cgroup => Some("a"),
            Whose::Mount => Some("m"),
            Whose::Process => Some("7"),
        };
        let of = |unit, value| {
            let tool = report(vec![figure(&[Operation::Read, Operation::Readv], unit, whose)]);
            let results = counts(&tool, &readings(&[(100, 0, name, value)]), &bounded);
            (found(&results), results)
        };
        for (calls, bytes) in [(12, 1353), (14, 1400), (17, 1576)] {
            assert_eq!(
                (of(CountedUnit::Calls, calls).0, of(MOVED, bytes).0),
                (vec![], vec![]),
                "{whose:?} {calls} {bytes}"
            );
        }
        let (kinds, results) = of(MOVED, 1352);
        assert_eq!(kinds, [Kind::CountsTooLow]);
        assert!(evidence_of(&results, Kind::CountsTooLow).contains("1352, really 1353 to 1576"), "{results:?}");
        assert_eq!(of(MOVED, 1577).0, [Kind::CountsTooHigh]);
        // The amount lacks readv, within the same bounds.
        for bytes in [953, 1000, 1176] {
            let (kinds, results) = of(MOVED, bytes);
            assert_eq!(kinds, [Kind::OperationsNotSeen], "{bytes}");
            assert!(evidence_of(&results, Kind::OperationsNotSeen).ends_with("what is missing is exactly readv"));
        }
    }
    // Operations of only the agent or the tool itself can be missing altogether.
    let own = Truth { optional: bounded.shares.clone(), ..bounded };
    let tool = report(vec![figure(&[Operation::Read, Operation::Readv], MOVED, Whose::Cgroup)]);
    assert_eq!(found(&counts(&tool, &readings(&[]), &own)), []);
}

/// The agent writes to memory files (memfd), which have no mount. A tool that counts regular files
/// has them.
#[test]
fn what_the_agent_does_with_files_of_no_mount_may_be_counted() {
    let on_mount = share("a", "m", Operation::Write, 5, 2000, 2000);
    let in_memory = CallShare { is_file: false, ..share("a", "", Operation::Write, 12_547, 12_547, 12_547) };
    let shares = vec![on_mount.clone(), in_memory.clone()];
    let of_agent = Truth { optional: shares.clone(), ..truth(shares.clone()) };
    let tool = report(vec![ReportedFigure {
        only_files: true,
        ..figure(&[Operation::Write], CountedUnit::Calls, Whose::Process)
    }]);
    for calls in [0, 5, 12_552] {
        assert_eq!(found(&counts(&tool, &readings(&[(100, 0, Some("7"), calls)]), &of_agent)), [], "{calls}");
    }
    let high = readings(&[(100, 0, Some("7"), 12_553)]);
    assert_eq!(found(&counts(&tool, &high, &of_agent)), [Kind::CountsTooHigh]);
    // The agent reads pipes and sockets, which have no mount either, and no file in memory.
    let reads = |calls, of: &CallShare| CallShare { operation: Operation::Read, calls, ..of.clone() };
    let of_reads = vec![reads(5, &on_mount), reads(100, &in_memory)];
    let reader = report(vec![ReportedFigure { operations: vec![Operation::Read], ..tool.figures[0].clone() }]);
    let of_agent = Truth { optional: of_reads.clone(), ..truth(of_reads) };
    assert_eq!(found(&counts(&reader, &readings(&[(100, 0, Some("7"), 6)]), &of_agent)), [Kind::CountsTooHigh]);
    // Other processes are not known to use files in memory.
    let of_workload = truth(shares);
    assert_eq!(found(&counts(&tool, &readings(&[(100, 0, Some("7"), 12_552)]), &of_workload)), [Kind::CountsTooHigh]);
}

#[test]
fn a_bundle_of_operations_that_is_missing_is_named_where_it_is_certain() {
    let operations = [Operation::Read, Operation::Readv, Operation::Write, Operation::Writev];
    let bytes = [1000, 300, 50, 7];
    let truth = truth(operations.iter().zip(bytes).map(|(&of, bytes)| share("a", "m", of, 4, bytes, bytes)).collect());
    let tool = report(vec![figure(&operations, MOVED, Whose::System)]);
    let results = counts(&tool, &readings(&[(100, 0, None, 1050)]), &truth);
    assert_eq!(found(&results), [Kind::OperationsNotSeen]);
    assert!(evidence_of(&results, Kind::OperationsNotSeen).ends_with("what is missing is exactly readv and writev"));
    // Each of the four has four calls, so the missing one is unknown.
    let tool = report(vec![figure(&operations, CountedUnit::Calls, Whose::System)]);
    let results = counts(&tool, &readings(&[(100, 0, None, 12)]), &truth);
    assert_eq!(found(&results), [Kind::CountsTooLow]);
    let all = "as much as operation read, or operation write, or operation readv, or operation writev, or the first call of each key";
    assert!(evidence_of(&results, Kind::CountsTooLow).ends_with(all), "{results:?}");
    let results = counts(&tool, &readings(&[(100, 0, None, 8)]), &truth);
    assert_eq!(found(&results), [Kind::CountsTooLow]);
    assert!(!evidence_of(&results, Kind::CountsTooLow).contains("as much as"), "{results:?}");
}

#[test]
fn a_figure_of_another_definition_is_shown_and_is_no_finding() {
    let truth = truth(vec![share("a", "m", Operation::Create, 3, 0, 0)]);
    let mut one = figure(&[Operation::Create], CountedUnit::Calls, Whose::System);
    let mut results = |calls, differs: Option<&str>| {
        one.differs = differs.map(str::to_owned);
        let (tool, readings) = (report(vec![one.clone()]), readings(&[(100, 0, None, calls)]));
        (counts(&tool, &readings, &truth), compared(&tool, &readings, &truth))
    };
    let differs = Some("calls of vfs_create, which open() with O_CREAT does not reach");
    for calls in [1, 5] {
        assert_eq!(found(&results(calls, None).0).len(), 1, "{calls}");
        let (results, shown) = results(calls, differs);
        assert!(
            found(&results).is_empty() && reason(&results, Kind::CountsTooLow).starts_with("no figure"),
            "{results:?}"
        );
        assert_eq!((shown[0].reported, shown[0].really, shown[0].differs.as_deref()), (calls, 3, differs));
    }
}

/// The reason distinguishes a tool that did not start from one without figures.
#[test]
fn why_figures_are_not_evaluated_is_true() {
    let tool = report(vec![figure(&[Operation::Read], MOVED, Whose::System)]);
    let reasons = |evidence: Evidence<'_>| {
        let results = evaluate(&evidence, &ValueLimits::default());
        let kinds = [Kind::CountsTooLow, Kind::EventsDropped, Kind::CountsGoBackwards, Kind::Unreadable];
        let reasons: std::collections::BTreeSet<_> = kinds.iter().map(|&kind| reason(&results, kind)).collect();
        reasons.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let silent = Start::NotReady(Refusal::new(Step::Load, "x".to_owned()));
    let known = Evidence { report: Some(&tool), ..Evidence::default() };
    assert_eq!(reasons(Evidence { start: Some(&silent), ..known }), ["it did not start"]);
    assert_eq!(reasons(Evidence { start: Some(&Start::Ready), ..known }), ["what it reported could not be read"]);
    assert_eq!(reasons(Evidence { start: Some(&silent), ..Evidence::default() }), ["it reports no figures"]);
}

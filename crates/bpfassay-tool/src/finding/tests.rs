// SPDX-License-Identifier: MIT OR Apache-2.0
use bpfassay_protocol::{
    Operation,
    tracer::{Refusal, Step},
};
use proptest::prelude::*;

mod certainty;
mod last_component;

use super::*;
use crate::{Counting, Form, Readings, Report, ReportedFigure, Sample, Stream, Unit, Whose};

fn share(cgroup: &str, mount: &str, operation: Operation, calls: u64, returned: u64, requested: u64) -> Share {
    Share {
        is_file: true,
        cgroup: vec![cgroup.to_owned(), format!("/{cgroup}")],
        mount: vec![mount.to_owned()],
        process: vec!["7".to_owned()],
        operation,
        calls,
        errors: Some(0),
        bytes_returned: Some(returned),
        bytes_requested: Some(requested),
    }
}

fn truth(shares: Vec<Share>) -> Truth {
    Truth { from_ns: 10, to_ns: 100, shares, is_whole_system: true, units: Unit::ALL.to_vec(), ..Truth::default() }
}

fn figure(operations: &[Operation], unit: Unit, whose: Whose) -> ReportedFigure {
    ReportedFigure {
        only_files: false,
        part: None,
        value: "v".to_owned(),
        labelled: [].into(),
        operations: operations.to_vec(),
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
        form: Form::Openmetrics { port: 1, path: "/".to_owned(), interval_ms: None },
        within_ms: None,
        excludes_itself: false,
        leaves_out: Vec::new(),
        lost: None,
        figures,
    }
}

/// Reports at 10, 50 and 100 ns; samples are (time, figure, subject, value).
fn readings(samples: &[(u64, usize, Option<&str>, u64)]) -> Readings {
    let sample = |&(at_ns, figure, subject, value): &(u64, usize, Option<&str>, u64)| Sample {
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
    evaluate(&evidence, &Limits::default())
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

const MOVED: Unit = Unit::BytesReturned;

#[test]
fn nothing_that_was_not_measured_is_clear() {
    for result in evaluate(&Evidence::default(), &Limits::default()) {
        assert!(matches!(result.status, FindingStatus::NotEvaluated { .. }), "{result:?}");
        let json = serde_json::to_string(&result).unwrap();
        assert!(json.contains(&format!("\"{}\"", result.kind.name())), "{json}");
    }
}

#[test]
fn refusals_are_classified_by_their_step() {
    let refusal = |step| {
        Start::Refused(Refusal {
            program: Some("on_read".to_owned()),
            errno: Some(22),
            verifier: Some("R1 invalid mem access 'scalar'".to_owned()),
            ..Refusal::new(step, "invalid argument".to_owned())
        })
    };
    let results = |start: Start| evaluate(&Evidence { start: Some(&start), ..Evidence::default() }, &Limits::default());
    let load = results(refusal(Step::Load));
    assert_eq!(found(&load), [Kind::DoesNotLoad]);
    assert_eq!(
        evidence_of(&load, Kind::DoesNotLoad),
        "on_read: invalid argument (error 22)\nverifier: R1 invalid mem access 'scalar'"
    );
    assert_eq!(reason(&load, Kind::DoesNotAttach), "it did not load");
    assert_eq!(found(&results(refusal(Step::Attach))), [Kind::DoesNotAttach]);
    assert!(is_clear(&results(refusal(Step::Attach)), Kind::DoesNotLoad));
    let ready = results(Start::Ready);
    assert!(is_clear(&ready, Kind::DoesNotLoad) && is_clear(&ready, Kind::DoesNotAttach));
    let silent = results(Start::NotReady { message: "60 s passed".to_owned() });
    assert_eq!(found(&silent), [Kind::DoesNotStart]);
    assert_eq!(evidence_of(&silent, Kind::DoesNotStart), "it never became ready: 60 s passed");
    assert!(is_clear(&ready, Kind::DoesNotStart) && is_clear(&load, Kind::DoesNotStart));
    for kind in [Kind::DoesNotLoad, Kind::DoesNotAttach] {
        assert!(reason(&silent, kind).ends_with("nothing shows which step failed: 60 s passed"));
    }
}

#[test]
fn prototypes_are_passed_on() {
    let results =
        |lines: &[String]| evaluate(&Evidence { prototypes: Some(lines), ..Evidence::default() }, &Limits::default());
    assert!(is_clear(&results(&[]), Kind::PrototypeDiffers));
    let lines: Vec<_> = (0..20).map(|n| format!("program {n}")).collect();
    assert!(evidence_of(&results(&lines), Kind::PrototypeDiffers).ends_with("program 15\nand 4 more"));
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
    // No figure is of readv, though one is of read; the tool does not claim to count writes.
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
    // Declared as requested, they are what they are declared to be.
    let honest = report(vec![figure(&[Operation::Read], Unit::BytesRequested, Whose::System)]);
    assert!(found(&counts(&honest, &readings(&[(100, 0, None, 512)]), &short)).is_empty());
    // KiB, rounded down each time.
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
fn mounts_and_cgroups_merged() {
    let truth = truth(vec![share("a", "m", Operation::Read, 4, 400, 400), share("b", "n", Operation::Read, 3, 30, 30)]);
    for (whose, kind, names) in
        [(Whose::Mount, Kind::MountsMerged, ["m", "n"]), (Whose::Cgroup, Kind::CgroupsMerged, ["/a", "/b"])]
    {
        let tool = report(vec![figure(&[Operation::Read], MOVED, whose)]);
        for name in [names[0], names[1], "0"] {
            let results = counts(&tool, &readings(&[(100, 0, Some(name), 430)]), &truth);
            assert_eq!(found(&results), [kind], "{name}");
        }
        let results = counts(&tool, &readings(&[(100, 0, Some(names[0]), 400), (100, 0, Some(names[1]), 30)]), &truth);
        assert!(is_clear(&results, kind) && found(&results).is_empty(), "{results:?}");
        // One is just not seen.
        let results = counts(&tool, &readings(&[(100, 0, Some(names[0]), 400)]), &truth);
        assert!(is_clear(&results, kind));
        assert_eq!(found(&results), [Kind::OperationsNotSeen]);
        let other = report(vec![figure(&[Operation::Read], MOVED, Whose::System)]);
        assert!(reason(&counts(&other, &readings(&[(100, 0, None, 430)]), &truth), kind).starts_with("no figure by"));
    }
}

/// The agent's own cgroup may have nothing, or all that it did: it is merged with another's all the same.
#[test]
fn what_is_merged_into_a_subject_of_uncertain_figures_is_merged() {
    let shares =
        vec![share("1", "m", Operation::Read, 9, 75_691, 75_691), share("7", "n", Operation::Read, 3, 66_341, 66_341)];
    let truth = Truth { optional: vec![shares[0].clone()], ..truth(shares) };
    let tool = report(vec![figure(&[Operation::Read], MOVED, Whose::Cgroup)]);
    let results = |value| counts(&tool, &readings(&[(100, 0, Some("1"), value)]), &truth);
    assert_eq!(found(&results(142_032)), [Kind::CgroupsMerged]);
    // No more than its own: the other is not seen.
    for value in [0, 75_690, 75_691] {
        assert_eq!(found(&results(value)), [Kind::OperationsNotSeen], "{value}");
    }
    assert_eq!(found(&results(142_033)), [Kind::OperationsNotSeen, Kind::CountsTooHigh]);
}

/// Two mounts of one file system have its device: who reports by device is right with their sum.
#[test]
fn mounts_that_a_tool_calls_by_one_name_are_one() {
    let on = |mount: &[&str], bytes| Share {
        mount: mount.iter().map(|&name| name.to_owned()).collect(),
        ..share("a", "", Operation::Read, 1, bytes, bytes)
    };
    let truth = truth(vec![on(&["/a", "0:40", "7"], 400), on(&["/b", "0:40", "8"], 30), on(&["/c", "0:41", "9"], 5)]);
    let tool = report(vec![figure(&[Operation::Read], MOVED, Whose::Mount)]);
    let of = |reported: &[(&str, u64)]| {
        let samples: Vec<_> = reported.iter().map(|&(name, value)| (100, 0, Some(name), value)).collect();
        counts(&tool, &readings(&samples), &truth)
    };
    assert_eq!(found(&of(&[("0:40", 430), ("0:41", 5)])), []);
    assert_eq!(found(&of(&[("/a", 400), ("/b", 30), ("9", 5)])), []);
    let low = of(&[("0:40", 400), ("0:41", 5)]);
    assert_eq!(found(&low), [Kind::CountsTooLow]);
    assert!(evidence_of(&low, Kind::CountsTooLow).contains("of mount 0:40: 400, really 430"), "{low:?}");
}

/// What a correct tool may leave out is no part of a sum that is right without it.
#[test]
fn what_is_merged_is_what_is_certain() {
    let shares = vec![
        share("a", "/a/data", Operation::Read, 4, 400, 400),
        share("b", "/b/data", Operation::Read, 3, 30, 30),
        share("c", "/proc", Operation::Read, 3, 7000, 7000),
    ];
    let truth = Truth { optional: vec![shares[2].clone()], ..truth(shares) };
    let tool = report(vec![figure(&[Operation::Read], MOVED, Whose::Mount)]);
    let results = counts(&tool, &readings(&[(100, 0, Some("data"), 430), (100, 0, Some("proc"), 7000)]), &truth);
    assert_eq!(
        evidence_of(&results, Kind::MountsMerged),
        "`v` of mount data: 430, which is 0 of its own and 430 of /a/data, /b/data"
    );
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
    let evaluated = |known: Evidence<'_>| found(&evaluate(&known, &Limits::default()));
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
    // What it lost thereby is no finding of its own; what another lacks is.
    let less = readings(&[(50, 0, Some("a"), 300), (100, 0, Some("a"), 200), (100, 0, Some("b"), 44)]);
    assert_eq!(found(&counts(&tool, &less, &truth)), [Kind::CountsGoBackwards]);
    let both = readings(&[(50, 0, Some("a"), 300), (100, 0, Some("a"), 200), (100, 0, Some("b"), 20)]);
    assert_eq!(found(&counts(&tool, &both, &truth)), [Kind::CountsGoBackwards, Kind::CountsTooLow]);
    // The map threw `a` out and began anew.
    let evicted = readings(&[(10, 0, Some("a"), 100), (100, 0, Some("a"), 140), (100, 0, Some("b"), 44)]);
    let results = counts(&tool, &evicted, &truth);
    assert_eq!(found(&results), [Kind::CountsVanish]);
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
    let lines = Report { form: Form::JsonLines { stream: Stream::Stdout, ignore: None }, ..tool };
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
    // One call of each of three keys; or of two, where the key has no mount.
    for (unit, value) in [(Unit::Calls, 18), (Unit::Calls, 19), (MOVED, 990)] {
        assert_eq!(found(&results(unit, value)), [Kind::FirstTouchLost], "{value}");
    }
    assert!(is_clear(&results(Unit::Calls, 21), Kind::FirstTouchLost));
    assert_eq!(found(&results(Unit::Calls, 15)), [Kind::CountsTooLow]);
    assert!(evidence_of(&results(Unit::Calls, 15), Kind::CountsTooLow).ends_with("of cgroup a: 15, really 21"));
    // As much as one mount's, in two operations of which the other mount has one, too.
    let results = counts(&of(MOVED), &readings(&[(100, 0, Some("a"), 400)]), &truth);
    assert_eq!(found(&results), [Kind::CountsTooLow]);
    assert!(evidence_of(&results, Kind::CountsTooLow).ends_with("400, really 1200; as much as mount n"), "{results:?}");
    let single = Truth { shares: vec![share("a", "m", Operation::Read, 1, 5, 5)], ..truth.clone() };
    let alone = counts(&of(Unit::Calls), &readings(&[(100, 0, Some("a"), 1)]), &single);
    assert!(reason(&alone, Kind::FirstTouchLost).contains("more than once"));
}

#[test]
fn counts_too_low_and_too_high_and_events_dropped() {
    let mut truth = truth(vec![share("a", "m", Operation::Read, 4, 400, 400)]);
    let tool = report(vec![figure(&[Operation::Read], Unit::Calls, Whose::System)]);
    let lost = |calls, lost| Readings { lost, ..readings(&[(100, 0, None, calls)]) };
    let results = |calls, events| counts(&tool, &lost(calls, events), &truth);
    assert_eq!(evidence_of(&results(4, Some(3)), Kind::EventsDropped), "it reports that it lost 3 events");
    assert!(is_clear(&results(4, Some(0)), Kind::EventsDropped) && is_clear(&results(4, Some(0)), Kind::CountsTooLow));
    // What it lost explains as much as that.
    assert_eq!(found(&results(1, Some(3))), [Kind::EventsDropped]);
    assert!(evidence_of(&results(1, Some(3)), Kind::EventsDropped).contains("1, really 4"));
    assert_eq!(found(&results(1, Some(1))), [Kind::EventsDropped, Kind::CountsTooLow]);
    // No tool is accused of losing events because something is missing.
    assert_eq!(found(&results(1, None)), [Kind::CountsTooLow]);
    assert_eq!(reason(&results(1, None), Kind::EventsDropped), "its output has no place for lost events");
    let high = readings(&[(100, 0, None, 5)]);
    assert_eq!(found(&counts(&tool, &high, &truth)), [Kind::CountsTooHigh]);
    assert!(is_clear(&counts(&tool, &readings(&[(100, 0, None, 4)]), &truth), Kind::CountsTooHigh));
    // Others may have done the rest.
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
    // What is missing may be in the part that was not read.
    cut.samples[0].value = 1;
    assert!(found(&counts(&tool, &cut, &truth)).is_empty());
}

/// What may have happened on either side of a report accuses no tool, whichever way it decides.
#[test]
fn only_what_is_outside_the_bounds_of_the_truth_is_found() {
    let bounded = Truth {
        // 2 of the calls may be missing, and 3 more may be there.
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
            assert_eq!((of(Unit::Calls, calls).0, of(MOVED, bytes).0), (vec![], vec![]), "{whose:?} {calls} {bytes}");
        }
        let (kinds, results) = of(MOVED, 1352);
        assert_eq!(kinds, [Kind::CountsTooLow]);
        assert!(evidence_of(&results, Kind::CountsTooLow).contains("1352, really 1353 to 1576"), "{results:?}");
        assert_eq!(of(MOVED, 1577).0, [Kind::CountsTooHigh]);
        // Without readv, within the same bounds.
        for bytes in [953, 1000, 1176] {
            let (kinds, results) = of(MOVED, bytes);
            assert_eq!(kinds, [Kind::OperationsNotSeen], "{bytes}");
            assert!(evidence_of(&results, Kind::OperationsNotSeen).ends_with("what is missing is exactly readv"));
        }
    }
    // What only the agent or the tool itself did may be left out altogether.
    let own = Truth { optional: bounded.shares.clone(), ..bounded };
    let tool = report(vec![figure(&[Operation::Read, Operation::Readv], MOVED, Whose::Cgroup)]);
    assert_eq!(found(&counts(&tool, &readings(&[]), &own)), []);
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
    // Each of the four has four calls: which of them it was is not known.
    let tool = report(vec![figure(&operations, Unit::Calls, Whose::System)]);
    let results = counts(&tool, &readings(&[(100, 0, None, 12)]), &truth);
    assert_eq!(found(&results), [Kind::FirstTouchLost]);
    let results = counts(&tool, &readings(&[(100, 0, None, 8)]), &truth);
    assert_eq!(found(&results), [Kind::CountsTooLow]);
    assert!(!evidence_of(&results, Kind::CountsTooLow).contains("as much as"), "{results:?}");
}

#[test]
fn subjects_that_are_not_known_are_shown() {
    let truth = truth(vec![
        share("a", "/mnt/nfs", Operation::Read, 71, 491_528, 491_528),
        share("b", "/tmp", Operation::Read, 3, 30, 30),
        share("c", "/proc", Operation::Write, 2, 20, 20),
    ]);
    let tool = report(vec![figure(&[Operation::Read], MOVED, Whose::Mount)]);
    let results = |samples: &[_]| counts(&tool, &readings(samples), &truth);
    // Misnamed: the figure is that of one that is missing.
    let misnamed = results(&[(100, 0, Some("/nfs"), 491_528), (100, 0, Some("/tmp"), 30)]);
    assert_eq!(found(&misnamed), [Kind::SubjectUnknown]);
    assert_eq!(
        evidence_of(&misnamed, Kind::SubjectUnknown),
        "`v` of mount /nfs: 491528; the same as really of mount /mnt/nfs"
    );
    // Merged under a name that is not known: that is one finding, not two.
    assert_eq!(found(&results(&[(100, 0, Some("/nfs"), 491_558)])), [Kind::MountsMerged]);
    let more = results(&[(100, 0, Some("/mnt/nfs"), 491_528), (100, 0, Some("/tmp"), 30), (100, 0, Some("/x"), 5)]);
    assert_eq!(found(&more), [Kind::SubjectUnknown]);
    assert!(evidence_of(&more, Kind::SubjectUnknown).ends_with("/x: 5; no mount did anything under this name"));
    // Known, of another operation; of nothing; and without a name, as of pipes.
    let known = results(&[
        (100, 0, Some("/mnt/nfs"), 491_528),
        (100, 0, Some("/tmp"), 30),
        (100, 0, Some("/x"), 0),
        (100, 0, Some(""), 57_956),
    ]);
    assert!(found(&known).is_empty() && is_clear(&known, Kind::SubjectUnknown), "{known:?}");
    let by_process = report(vec![figure(&[Operation::Read], MOVED, Whose::Process)]);
    let others = counts(&by_process, &readings(&[(100, 0, Some("7"), 491_558), (100, 0, Some("8"), 5)]), &truth);
    assert!(
        found(&others).is_empty() && reason(&others, Kind::SubjectUnknown).starts_with("no figure by"),
        "{others:?}"
    );
}

#[test]
fn what_is_reported_under_another_name_is_compared_with_whose_it_is() {
    let reads = [Operation::Read, Operation::Readv];
    let truth = truth(vec![
        share("a", "/mnt/nfs", Operation::Read, 71, 491_528, 491_528),
        share("a", "/mnt/nfs", Operation::Readv, 12, 786_432, 786_432),
        share("b", "/tmp", Operation::Read, 3, 30, 30),
    ]);
    let tool = report(vec![figure(&reads, Unit::Calls, Whose::Mount), figure(&reads, MOVED, Whose::Mount)]);
    let results = |samples: &[_]| counts(&tool, &readings(samples), &truth);
    let tmp = [(100, 0, Some("/tmp"), 3), (100, 1, Some("/tmp"), 30)];
    // By its calls, /nfs is /mnt/nfs: so that of its bytes, those of readv are missing, and not all.
    let misnamed = results(&[tmp[0], tmp[1], (100, 0, Some("/nfs"), 83), (100, 1, Some("/nfs"), 491_528)]);
    assert_eq!(found(&misnamed), [Kind::SubjectUnknown, Kind::OperationsNotSeen]);
    assert_eq!(
        evidence_of(&misnamed, Kind::SubjectUnknown),
        "`v` of mount /nfs: 83; the same as really of mount /mnt/nfs\n\
         `v` of mount /nfs: 491528; taken for mount /mnt/nfs, of which another figure is the same"
    );
    let missing = evidence_of(&misnamed, Kind::OperationsNotSeen);
    assert!(missing.ends_with("/mnt/nfs: 491528, really 1277960: what is missing is exactly readv"), "{missing}");
    // Two names that are both the same as one mount, by a figure each: one of them is by chance.
    let two = [tmp[0], tmp[1], (100, 0, Some("/nfs"), 83), (100, 0, Some("/x"), 5), (100, 1, Some("/x"), 1_277_960)];
    let shown = evidence_of(&results(&two), Kind::SubjectUnknown);
    assert!(!shown.contains("taken for"), "{shown}");
    // It has its own name as well: nothing is added to it.
    let own =
        [tmp[0], tmp[1], (100, 0, Some("/nfs"), 83), (100, 1, Some("/nfs"), 9), (100, 1, Some("/mnt/nfs"), 1_277_960)];
    assert_eq!(found(&results(&own)), [Kind::SubjectUnknown]);
    // Which of two it is, no figure shows: nothing is taken for anything.
    let unclear = results(&[tmp[0], (100, 0, Some("/nfs"), 83), (100, 1, Some("/nfs"), 30)]);
    let shown = evidence_of(&unclear, Kind::SubjectUnknown);
    assert!(!shown.contains("taken for"), "{shown}");
}

#[test]
fn a_figure_of_another_definition_is_shown_and_accuses_nobody() {
    let truth = truth(vec![share("a", "m", Operation::Create, 3, 0, 0)]);
    let mut one = figure(&[Operation::Create], Unit::Calls, Whose::System);
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

/// A tool that has figures and did not start is not one that has none.
#[test]
fn why_figures_are_not_evaluated_is_true() {
    let tool = report(vec![figure(&[Operation::Read], MOVED, Whose::System)]);
    let reasons = |evidence: Evidence<'_>| {
        let results = evaluate(&evidence, &Limits::default());
        let kinds = [Kind::CountsTooLow, Kind::EventsDropped, Kind::CountsGoBackwards, Kind::Unreadable];
        let reasons: std::collections::BTreeSet<_> = kinds.iter().map(|&kind| reason(&results, kind)).collect();
        reasons.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let silent = Start::NotReady { message: "x".to_owned() };
    let known = Evidence { report: Some(&tool), ..Evidence::default() };
    assert_eq!(reasons(Evidence { start: Some(&silent), ..known }), ["it did not start"]);
    assert_eq!(reasons(Evidence { start: Some(&Start::Ready), ..known }), ["what it reported could not be read"]);
    assert_eq!(reasons(Evidence { start: Some(&silent), ..Evidence::default() }), ["it reports no figures"]);
}

#[test]
fn what_the_kernel_saw() {
    let results =
        |facts: KernelFacts| evaluate(&Evidence { kernel: Some(&facts), ..Evidence::default() }, &Limits::default());
    let good = results(KernelFacts {
        missed_probes: Some(0),
        recursion_misses: None,
        left_behind: Some(Vec::new()),
        memory_bytes: Some(1 << 20),
        idle_cpu: Some((10, 1000)),
        attach_ns: Some(1),
        detach: Some(Detach::After(1)),
    });
    let kinds =
        [Kind::MissedProbes, Kind::LeftBehind, Kind::MemoryHeld, Kind::IdleCpu, Kind::SlowAttach, Kind::SlowDetach];
    assert!(kinds.iter().all(|&kind| is_clear(&good, kind)));
    let bad = results(KernelFacts {
        missed_probes: Some(3),
        recursion_misses: Some(2),
        left_behind: Some(vec!["program on_read".to_owned()]),
        memory_bytes: Some(1 << 30),
        idle_cpu: Some((11, 1000)),
        attach_ns: Some(u64::MAX),
        detach: Some(Detach::After(u64::MAX)),
    });
    assert_eq!(found(&bad), kinds);
    assert_eq!(
        evidence_of(&bad, Kind::MissedProbes),
        "3 kprobe hits ran no handler\n2 times a program was already running on its CPU"
    );
    assert!(evidence_of(&bad, Kind::IdleCpu).contains("11000 millionths"));
    let how = "was killed: SIGINT had not ended it after 1 s";
    let killed = results(KernelFacts { detach: Some(Detach::Killed(how.to_owned())), ..KernelFacts::default() });
    assert_eq!(evidence_of(&killed, Kind::SlowDetach), how);
    let unknown = results(KernelFacts::default());
    assert!(kinds.iter().all(|&kind| matches!(status(&unknown, kind), FindingStatus::NotEvaluated { .. })));
}

#[test]
fn what_cannot_be_read_is_reported() {
    let readings = Readings { unread: 2, first_unread: Some("no sample: x".to_owned()), ..Readings::default() };
    let results =
        |readings| evaluate(&Evidence { readings: Some(readings), ..Evidence::default() }, &Limits::default());
    assert_eq!(evidence_of(&results(&readings), Kind::Unreadable), "2 times; first: no sample: x");
    assert!(is_clear(&results(&Readings::default()), Kind::Unreadable));
}

fn shares() -> impl Strategy<Value = Vec<Share>> {
    let one = (0..3_u8, 0..3_u8, 0..4_usize, 1..9_u64, 0..5000_u64, 0..5000_u64).prop_map(
        |(cgroup, mount, operation, calls, returned, more)| {
            share(
                &format!("c{cgroup}"),
                &format!("m{mount}"),
                Operation::ALL[operation],
                calls,
                returned,
                returned + more,
            )
        },
    );
    proptest::collection::vec(one, 1..8)
}

proptest! {
    #[test]
    fn an_exact_tool_has_no_finding(shares in shares(), scale in 1..3_u64, is_whole_system: bool) {
        let operations = &Operation::ALL[..4];
        let truth = Truth { is_whole_system, ..truth(shares) };
        let units = [Unit::Calls, Unit::Errors, Unit::BytesReturned, Unit::BytesRequested];
        let whose = [Whose::System, Whose::Cgroup, Whose::Mount, Whose::Process];
        let mut figures = Vec::new();
        let mut samples = Vec::new();
        for (unit, whose) in units.iter().flat_map(|unit| whose.iter().map(move |whose| (*unit, *whose))) {
            let mut one = figure(operations, unit, whose);
            one.scale = if unit == Unit::BytesReturned { scale } else { 1 };
            for subject in truth.subjects(&one) {
                let total = subject.total(unit).unwrap();
                let std::borrow::Cow::Borrowed(names) = subject.names else { panic!("a tool united them") };
                let name = names.last().map(String::as_str);
                for (at, part) in [(50, total / 2), (100, total)] {
                    samples.push((at, figures.len(), name, part / one.scale * one.scale));
                }
            }
            figures.push(one);
        }
        let report = report(figures);
        let results = counts(&report, &readings(&samples), &truth);
        prop_assert_eq!(found(&results), [], "{:?}", results);
        if is_whole_system {
            prop_assert!(is_clear(&results, Kind::CountsTooLow) && is_clear(&results, Kind::OperationsNotSeen));
        }
    }

    #[test]
    fn a_tool_that_is_not_exact_has_a_finding(shares in shares(), wrong in 1..100_u64, more: bool) {
        let truth = truth(shares);
        let report = report(vec![figure(&Operation::ALL[..4], MOVED, Whose::System)]);
        let total: u64 = truth.shares.iter().filter_map(|share| share.bytes_returned).sum();
        let value = if more { total + wrong } else { total.saturating_sub(wrong) };
        let results = counts(&report, &readings(&[(100, 0, None, value)]), &truth);
        prop_assert_eq!(found(&results).len(), usize::from(value != total), "{:?}", results);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Certainty of findings, and the choice of the missing part.

use super::*;
use crate::readings::{Bucket, Distribution};

pub(super) fn certainty(results: &[FindingResult], kind: Kind) -> Option<Certainty> {
    match status(results, kind) {
        FindingStatus::Found { certainty, .. } => *certainty,
        other => panic!("{kind}: {other:?}"),
    }
}

/// A tool whose figure of `subject` grew from 0 to `value` in the second of three reports.
fn grown(subject: Option<&str>, value: u64) -> Readings {
    readings(&[(10, 0, subject, 0), (50, 0, subject, value), (100, 0, subject, value)])
}

/// Evaluates a tool that reported `value` for read and readv, with these shares as truth.
fn of(value: u64, truth: &Truth) -> Vec<FindingResult> {
    let report = report(vec![figure(&[Operation::Read, Operation::Readv], MOVED, Whose::System)]);
    counts(&report, &grown(None, value), truth)
}

fn shares() -> Vec<CallShare> {
    vec![
        share("a", "m", Operation::Read, 4, 400, 400),
        share("b", "m", Operation::Read, 3, 90, 90),
        share("b", "m", Operation::Readv, 7, 55, 55),
    ]
}

#[test]
fn an_amount_to_the_unit_proves_and_one_within_bounds_fits() {
    let exact = truth(shares());
    let results = of(490, &exact);
    assert_eq!(found(&results), [Kind::OperationsNotSeen]);
    assert_eq!(certainty(&results, Kind::OperationsNotSeen), Some(Certainty::Proven));
    // Something else can have happened during the report.
    let bounded = Truth { earlier: vec![share("a", "m", Operation::Read, 1, 9, 9)], ..truth(shares()) };
    let results = of(490, &bounded);
    assert_eq!(certainty(&results, Kind::OperationsNotSeen), Some(Certainty::Fitting));
    // A figure that stays at 0 needs no amount.
    let results = of(0, &bounded);
    assert_eq!(certainty(&results, Kind::OperationsNotSeen), Some(Certainty::Proven));
    assert_eq!(certainty(&of(501, &exact), Kind::CountsTooLow), Some(Certainty::Bounded));
    assert_eq!(certainty(&of(600, &exact), Kind::CountsTooHigh), Some(Certainty::Bounded));
}

#[test]
fn where_something_else_is_as_much_no_cause_is_named_and_all_are_shown() {
    // The only other cgroup did as much as the operation.
    let read = || share("a", "m", Operation::Read, 4, 400, 400);
    let ambiguous = truth(vec![read(), share("b", "m", Operation::Readv, 7, 55, 55)]);
    let results = of(400, &ambiguous);
    assert_eq!(found(&results), [Kind::CountsTooLow]);
    let evidence = evidence_of(&results, Kind::CountsTooLow);
    assert!(evidence.ends_with("400, really 455; as much as cgroup b, or operation readv"), "{evidence}");
    assert_eq!(certainty(&results, Kind::CountsTooLow), Some(Certainty::Bounded));
    // Two operations together have the same amount as the first calls of all keys: 10 bytes per
    // read, and 1 for each other operation.
    let operations = [(Operation::Read, 40, 400), (Operation::Write, 5, 5), (Operation::Fsync, 7, 7)];
    let of_operation = |(operation, calls, bytes)| share("a", "m", operation, calls, bytes, bytes);
    let both = truth(operations.into_iter().map(of_operation).collect());
    let report = report(vec![figure(&operations.map(|(operation, ..)| operation), MOVED, Whose::System)]);
    let results = counts(&report, &grown(None, 400), &both);
    assert_eq!(found(&results), [Kind::CountsTooLow]);
    let evidence = evidence_of(&results, Kind::CountsTooLow);
    let all = "400, really 412; as much as operations write and fsync, or the first call of each key";
    assert!(evidence.ends_with(all), "{evidence}");
}

/// A phase with a single operation is not another cause than that operation.
#[test]
fn a_phase_of_an_operation_does_not_hide_it() {
    let phase = |operation| ("write".to_owned(), vec![share("a", "m", operation, 7, 55, 55)]);
    let with = |operation| Truth { phases: vec![phase(operation)], ..truth(shares()) };
    let results = of(490, &with(Operation::Readv));
    let evidence = evidence_of(&results, Kind::OperationsNotSeen);
    assert!(evidence.ends_with("what is missing is exactly readv; as much as phase write"), "{evidence}");
    assert_eq!(certainty(&results, Kind::OperationsNotSeen), Some(Certainty::Fitting));
    let results = of(490, &with(Operation::Read));
    let evidence = evidence_of(&results, Kind::CountsTooLow);
    assert!(evidence.ends_with("490, really 545; as much as operation readv, or phase write"), "{evidence}");
}

#[test]
fn a_phase_that_is_missing_is_named() {
    let phases = vec![
        ("write".to_owned(), vec![share("a", "m", Operation::Read, 1, 37, 37)]),
        ("read".to_owned(), vec![share("a", "m", Operation::Read, 3, 363, 363)]),
    ];
    let results = of(508, &Truth { phases, ..truth(shares()) });
    let evidence = evidence_of(&results, Kind::CountsTooLow);
    assert!(evidence.ends_with("508, really 545; as much as phase write"), "{evidence}");
}

#[test]
fn what_a_tool_or_the_kernel_says_is_reported() {
    let lost = Readings { lost: Some(3), ..grown(None, 545) };
    let report = report(vec![figure(&[Operation::Read, Operation::Readv], MOVED, Whose::System)]);
    let results = counts(&report, &lost, &truth(shares()));
    assert_eq!(
        (found(&results), certainty(&results, Kind::EventsDropped)),
        (vec![Kind::EventsDropped], Some(Certainty::Reported))
    );
    let facts = KernelFacts { missed_probes: Some(2), memory_bytes: Some(u64::MAX), ..KernelFacts::default() };
    let results = evaluate(&Evidence { kernel: Some(&facts), ..Evidence::default() }, &ValueLimits::default());
    assert_eq!(certainty(&results, Kind::MissedProbes), Some(Certainty::Reported));
    assert_eq!(certainty(&results, Kind::MemoryHeld), Some(Certainty::Bounded));
}

#[test]
fn every_finding_says_how_sure_it_is_and_older_results_do_not() {
    for certainty in Certainty::ALL {
        let found = FindingStatus::found(certainty, vec!["x".to_owned()]);
        let json = serde_json::to_string(&found).unwrap();
        assert!(json.contains(&format!("\"certainty\":\"{}\"", certainty.name())), "{json}");
        assert_eq!(serde_json::from_str::<FindingStatus>(&json).unwrap(), found);
    }
    let older: FindingStatus = serde_json::from_str("{\"status\":\"found\",\"evidence\":[\"x\"]}").unwrap();
    assert_eq!(older, FindingStatus::Found { evidence: vec!["x".to_owned()], certainty: None });
}

/// Other processes also send and receive.
#[test]
fn what_the_whole_system_sent_is_not_known() {
    let sent = |whose| {
        let mut share = share("a", "m", Operation::Send, 4, 400, 400);
        share.is_file = false;
        let report = report(vec![figure(&[Operation::Send], MOVED, whose)]);
        move |value| {
            let subject = (whose == Whose::Process).then_some("7");
            let readings = grown(subject, value);
            found(&counts(&report, &readings, &truth(vec![share.clone()])))
        }
    };
    let (of_system, of_process) = (sent(Whose::System), sent(Whose::Process));
    assert_eq!([of_system(400), of_system(9000), of_system(399)], [vec![], vec![], vec![Kind::CountsTooLow]]);
    assert_eq!([of_process(400), of_process(9000)], [vec![], vec![Kind::CountsTooHigh]]);
}

#[test]
fn a_mount_is_shown_by_the_name_that_it_was_reported_under() {
    let truth = truth(vec![
        share("a", "/mnt/nfs", Operation::Read, 3, 300, 300),
        share("a", "/srv", Operation::Read, 2, 20, 20),
    ]);
    let report = report(vec![figure(&[Operation::Read], MOVED, Whose::Mount)]);
    let samples =
        [(10, 0, Some("/nfs"), 0), (100, 0, Some("/nfs"), 300), (10, 0, Some("/srv"), 0), (100, 0, Some("/srv"), 20)];
    let shown = compared(&report, &readings(&samples), &truth);
    let shown = shown.iter().map(|one| (one.subject.as_deref().unwrap(), one.reported, one.reported_as.as_deref()));
    assert_eq!(shown.collect::<Vec<_>>(), [("/mnt/nfs", 300, Some("/nfs")), ("/srv", 20, None)]);
}

#[test]
fn values_of_histograms_stand_beside_their_number() {
    let report = report(vec![figure(&[Operation::Read], CountedUnit::Calls, Whose::Process)]);
    let mut readings = grown(Some("7"), 200);
    let values = |at_ns, counts: [u64; 3]| Distribution {
        at_ns,
        figure: 0,
        subject: Some("7".to_owned()),
        buckets: counts
            .into_iter()
            .zip(["9", "10", "127"])
            .map(|(count, up_to)| Bucket { least: 0, up_to: up_to.to_owned(), count })
            .collect(),
    };
    readings.distributions = vec![values(10, [5, 0, 1]), values(100, [103, 100, 3])];
    let truth = truth(vec![share("a", "m", Operation::Read, 200, 0, 0)]);
    // Between the two reports: 98, 100 and 2.
    let expected = Values { half_up_to: "10".to_owned(), most_up_to: "10".to_owned(), all_up_to: "127".to_owned() };
    assert_eq!(compared(&report, &readings, &truth)[0].values, Some(expected));
    assert_eq!(found(&counts(&report, &readings, &truth)), []);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures by cgroup, mount or process: merged, unknown, or under another name.

use super::*;
use crate::readings::Vanished;

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
        // One subject is merely not reported.
        let results = counts(&tool, &readings(&[(100, 0, Some(names[0]), 400)]), &truth);
        assert!(is_clear(&results, kind));
        assert_eq!(found(&results), [Kind::CountsTooLow]);
        let other = report(vec![figure(&[Operation::Read], MOVED, Whose::System)]);
        assert!(reason(&counts(&other, &readings(&[(100, 0, None, 430)]), &truth), kind).starts_with("no figure by"));
    }
}

/// The counts of the agent's own cgroup are optional. It can still be merged with another cgroup.
#[test]
fn what_is_merged_into_a_subject_of_uncertain_figures_is_merged() {
    let shares =
        vec![share("1", "m", Operation::Read, 9, 75_691, 75_691), share("7", "n", Operation::Read, 3, 66_341, 66_341)];
    let truth = Truth { optional: vec![shares[0].clone()], ..truth(shares) };
    let tool = report(vec![figure(&[Operation::Read], MOVED, Whose::Cgroup)]);
    let results = |value| counts(&tool, &readings(&[(100, 0, Some("1"), value)]), &truth);
    assert_eq!(found(&results(142_032)), [Kind::CgroupsMerged]);
    // The value is at most the agent's own, so the other cgroup is missed.
    for value in [75_690, 75_691] {
        assert_eq!(found(&results(value)), [Kind::CountsTooLow], "{value}");
    }
    assert_eq!(found(&results(142_033)), [Kind::CountsTooLow, Kind::CountsTooHigh]);
    // Neither is reported: no read is seen.
    assert_eq!(found(&results(0)), [Kind::OperationsNotSeen]);
}

/// Two mounts of one file system share a device. A tool that reports by device correctly reports
/// the sum.
#[test]
fn mounts_that_a_tool_calls_by_one_name_are_one() {
    let on = |mount: &[&str], bytes| CallShare {
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

/// Optional amounts are not part of a sum that is right without them.
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
fn subjects_that_are_not_known_are_shown() {
    let truth = truth(vec![
        share("a", "/mnt/nfs", Operation::Read, 71, 491_528, 491_528),
        share("b", "/tmp", Operation::Read, 3, 30, 30),
        share("c", "/proc", Operation::Write, 2, 20, 20),
    ]);
    let tool = report(vec![figure(&[Operation::Read], MOVED, Whose::Mount)]);
    let results = |samples: &[_]| counts(&tool, &readings(samples), &truth);
    // The figure of a missing mount has another name.
    let misnamed = results(&[(100, 0, Some("/nfs"), 491_528), (100, 0, Some("/tmp"), 30)]);
    assert_eq!(found(&misnamed), [Kind::SubjectUnknown]);
    assert_eq!(
        evidence_of(&misnamed, Kind::SubjectUnknown),
        "`v` of mount /nfs: 491528; the same as really of mount /mnt/nfs"
    );
    // Merging under an unknown name is one finding, not two.
    assert_eq!(found(&results(&[(100, 0, Some("/nfs"), 491_558)])), [Kind::MountsMerged]);
    let more = results(&[(100, 0, Some("/mnt/nfs"), 491_528), (100, 0, Some("/tmp"), 30), (100, 0, Some("/x"), 5)]);
    assert_eq!(found(&more), [Kind::SubjectUnknown]);
    assert!(evidence_of(&more, Kind::SubjectUnknown).ends_with("/x: 5; no mount did anything under this name"));
    // On a shared machine, an unexplained name can be a mount of others. A wrong name is still
    // found.
    let shared = Truth { is_shared: true, ..truth.clone() };
    let beside = |samples: &[_]| found(&counts(&tool, &readings(samples), &shared));
    assert_eq!(
        beside(&[(100, 0, Some("/mnt/nfs"), 491_528), (100, 0, Some("/tmp"), 30), (100, 0, Some("/x"), 5)]),
        [Kind::SubjectUnknown; 0]
    );
    assert_eq!(beside(&[(100, 0, Some("/nfs"), 491_528), (100, 0, Some("/tmp"), 30)]), [Kind::SubjectUnknown]);
    // A known mount with another operation, an amount of 0, and an empty name as for pipes.
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
    let tool = report(vec![figure(&reads, CountedUnit::Calls, Whose::Mount), figure(&reads, MOVED, Whose::Mount)]);
    let results = |samples: &[_]| counts(&tool, &readings(samples), &truth);
    let tmp = [(100, 0, Some("/tmp"), 3), (100, 1, Some("/tmp"), 30)];
    // The call counts show that /nfs is /mnt/nfs. Therefore its bytes lack only those of readv.
    let misnamed = results(&[tmp[0], tmp[1], (100, 0, Some("/nfs"), 83), (100, 1, Some("/nfs"), 491_528)]);
    assert_eq!(found(&misnamed), [Kind::SubjectUnknown, Kind::OperationsNotSeen]);
    assert_eq!(
        evidence_of(&misnamed, Kind::SubjectUnknown),
        "`v` of mount /nfs: 83; the same as really of mount /mnt/nfs\n\
         `v` of mount /nfs: 491528; taken for mount /mnt/nfs, of which another figure is the same"
    );
    let missing = evidence_of(&misnamed, Kind::OperationsNotSeen);
    assert!(missing.ends_with("/mnt/nfs: 491528, really 1277960: what is missing is exactly readv"), "{missing}");
    // Two names each match the same mount in one figure. One of them matches by chance.
    let two = [tmp[0], tmp[1], (100, 0, Some("/nfs"), 83), (100, 0, Some("/x"), 5), (100, 1, Some("/x"), 1_277_960)];
    let shown = evidence_of(&results(&two), Kind::SubjectUnknown);
    assert!(!shown.contains("taken for"), "{shown}");
    // The mount is also reported by its own name, so nothing is added.
    let own =
        [tmp[0], tmp[1], (100, 0, Some("/nfs"), 83), (100, 1, Some("/nfs"), 9), (100, 1, Some("/mnt/nfs"), 1_277_960)];
    assert_eq!(found(&results(&own)), [Kind::SubjectUnknown]);
    // No figure shows which of two mounts the name is, so it is matched to none.
    let unclear = results(&[tmp[0], (100, 0, Some("/nfs"), 83), (100, 1, Some("/nfs"), 30)]);
    let shown = evidence_of(&unclear, Kind::SubjectUnknown);
    assert!(!shown.contains("taken for"), "{shown}");
}

/// A missed mount is not an unseen operation: reads of other mounts are reported.
#[test]
fn a_mount_that_is_missed_is_no_operation_that_is_not_seen() {
    let reads = [Operation::Read, Operation::Readv];
    let shares = vec![
        share("a", "/mnt/nfs", Operation::Read, 4, 400, 400),
        share("a", "/tmp", Operation::Read, 3, 30, 30),
        share("a", "/srv", Operation::Readv, 2, 20, 20),
    ];
    let results = |operations: &[Operation], samples: &[(&str, u64)]| {
        let tool = report(vec![figure(operations, MOVED, Whose::Mount)]);
        let samples: Vec<_> = samples.iter().map(|&(name, value)| (100, 0, Some(name), value)).collect();
        counts(&tool, &readings(&samples), &truth(shares.clone()))
    };
    let missed = results(&reads, &[("/mnt/nfs", 400), ("/srv", 20)]);
    assert_eq!(found(&missed), [Kind::CountsTooLow]);
    assert_eq!(
        evidence_of(&missed, Kind::CountsTooLow),
        "`v` (read+readv, bytes-returned) of mount /tmp: 0, really 30: nothing of this mount, though read of others is reported"
    );
    assert!(matches!(
        status(&missed, Kind::CountsTooLow),
        FindingStatus::Found { certainty: Some(Certainty::Bounded), .. }
    ));
    assert!(is_clear(&missed, Kind::OperationsNotSeen));
    // No report shows whether other mounts have readv, or whether the operation is unseen.
    let unseen = results(&reads, &[("/mnt/nfs", 400), ("/tmp", 30)]);
    assert_eq!(found(&unseen), [Kind::OperationsNotSeen]);
    assert!(evidence_of(&unseen, Kind::OperationsNotSeen).ends_with("of mount /srv: 0, really 20: nothing of readv"));
    // Reads are seen under an unknown name.
    let elsewhere = results(&[Operation::Read], &[("/x", 77)]);
    assert_eq!(found(&elsewhere), [Kind::SubjectUnknown, Kind::OperationsNotSeen, Kind::CountsTooLow]);
    let unreported = evidence_of(&elsewhere, Kind::OperationsNotSeen);
    assert_eq!(unreported, "no figure counts readv: 2 calls, 20 bytes");
    // Two operations fit, so it is unknown which one was seen.
    let either = results(&reads, &[("/x", 77)]);
    assert_eq!(found(&either), [Kind::SubjectUnknown, Kind::OperationsNotSeen]);
}

/// The other mount's number is explained by other operations: 25 bytes can be those of readv alone.
#[test]
fn what_other_operations_explain_shows_none() {
    let tool = report(vec![figure(&[Operation::Read, Operation::Readv], MOVED, Whose::Mount)]);
    let truth = truth(vec![
        share("a", "/m", Operation::Read, 4, 400, 400),
        share("a", "/m", Operation::Readv, 1, 25, 25),
        share("a", "/n", Operation::Read, 3, 30, 30),
    ]);
    let of = |value| counts(&tool, &readings(&[(100, 0, Some("/m"), value)]), &truth);
    let nothing_of_read = of(25);
    assert_eq!(found(&nothing_of_read), [Kind::OperationsNotSeen]);
    let evidence = evidence_of(&nothing_of_read, Kind::OperationsNotSeen);
    assert!(evidence.contains("25, really 425: what is missing is exactly read"), "{evidence}");
    assert!(evidence.contains("of mount /n: 0, really 30: nothing of read"), "{evidence}");
    assert_eq!(found(&of(26)), [Kind::CountsTooLow]);
}

/// An LRU map by file and process. Evicted keys are missing from a process that is still reported.
#[test]
fn keys_that_vanish_within_a_subject_are_named_with_their_map() {
    let truth = truth(vec![share("a", "m", Operation::Read, 9, 900, 900)]);
    let tool = Report {
        form: ReportForm::Map { map: "counts".to_owned() },
        ..report(vec![figure(&[Operation::Read], MOVED, Whose::Cgroup)])
    };
    let vanished =
        Vanished { figure: 0, subject: Some("a".to_owned()), keys: 2, amount: 200, last_ns: 50, lacking_ns: 100 };
    let results = |last: u64| {
        let samples = [(10, 0, Some("a"), 0), (50, 0, Some("a"), 500), (100, 0, Some("a"), last)];
        let read = Readings { vanished: vec![vanished.clone()], ..readings(&samples) };
        let kernel = KernelFacts { evicting: vec!["counts".to_owned()], ..KernelFacts::default() };
        let evidence = Evidence {
            report: Some(&tool),
            readings: Some(&read),
            truth: Some(&truth),
            kernel: Some(&kernel),
            ..Evidence::default()
        };
        evaluate(&evidence, &ValueLimits::default())
    };
    let cause = "; its map `counts` evicts keys (LRU), on several CPUs before it is full";
    let explained = results(700);
    assert_eq!(found(&explained), [Kind::CountsVanish]);
    let expected = "`v` of a: 2 of its keys, with 200, were there at 50 ns or later, and not at 100 ns or later";
    assert_eq!(evidence_of(&explained, Kind::CountsVanish), format!("{expected}{cause}"));
    // Keys evicted between reports are in no report. A decrease through evicted keys is explained
    // once.
    let less = results(400);
    assert_eq!(found(&less), [Kind::CountsGoBackwards, Kind::CountsVanish, Kind::CountsTooLow]);
    let evidence = evidence_of(&less, Kind::CountsTooLow);
    assert!(
        evidence.contains("400, really 900; 200 of what is missing vanished") && evidence.ends_with(cause),
        "{evidence}"
    );
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures lose counts in maps that are full, and in maps that CPUs update without atomic
//! instructions.

use super::*;

/// Evaluates a tool whose figure from the map `counts` is `reported`, and really 10.
fn of_map(reported: u64, kernel: &KernelFacts) -> Vec<FindingResult> {
    let truth = truth(vec![share("a", "m", Operation::Read, 10, 900, 900)]);
    let tool = Report {
        form: ReportForm::Map { map: "counts".to_owned() },
        ..report(vec![figure(&[Operation::Read], CountedUnit::Calls, Whose::Cgroup)])
    };
    let read = readings(&[(10, 0, Some("a"), 0), (50, 0, Some("a"), 1), (100, 0, Some("a"), reported)]);
    let evidence = Evidence {
        report: Some(&tool),
        readings: Some(&read),
        truth: Some(&truth),
        kernel: Some(kernel),
        ..Evidence::default()
    };
    evaluate(&evidence, &ValueLimits::default())
}

/// Evaluates such a tool with a racy update of the map `racy`.
fn results(cpus: u32, racy: &str, reported: u64) -> Vec<FindingResult> {
    let racy = Racy { program: "on_read".to_owned(), map: racy.to_owned(), line: Some("a.c:3: n += 1;".to_owned()) };
    of_map(reported, &KernelFacts { cpus, seed: Some(23), racy: Some(vec![racy]), ..KernelFacts::default() })
}

const UPDATE: &str = "on_read updates map `counts` of all CPUs, and not atomically: a.c:3: n += 1;";

#[test]
fn a_figure_that_is_too_low_on_several_cpus_proves_the_racy_update_of_its_map() {
    let lost = results(4, "counts", 7);
    assert_eq!(found(&lost), [Kind::RacyUpdate]);
    let evidence = evidence_of(&lost, Kind::RacyUpdate);
    assert_eq!(evidence, format!("`v` (read, calls) of cgroup a: 7, really 10 on 4 CPUs with seed 23: {UPDATE}"));
    let status = status(&lost, Kind::RacyUpdate);
    assert!(matches!(status, FindingStatus::Found { certainty: Some(Certainty::Proven), .. }), "{status:?}");
}

#[test]
fn without_a_lost_count_or_another_cpu_the_update_only_fits() {
    for (cpus, racy, reported, kinds) in [
        (4, "counts", 10, vec![Kind::RacyUpdate]),
        (1, "counts", 7, vec![Kind::RacyUpdate, Kind::CountsTooLow]),
        (4, "others", 7, vec![Kind::RacyUpdate, Kind::CountsTooLow]),
    ] {
        let results = results(cpus, racy, reported);
        assert_eq!(found(&results), kinds, "{cpus} {racy} {reported}");
        let status = status(&results, Kind::RacyUpdate);
        assert!(matches!(status, FindingStatus::Found { certainty: Some(Certainty::Fitting), .. }), "{status:?}");
    }
}

#[test]
fn what_is_missing_beside_a_full_map_names_the_map() {
    let full = |name: &str, entries, had_room| {
        let full = FullMap { name: name.to_owned(), entries, had_room, when: "after phase `read`".to_owned() };
        of_map(7, &KernelFacts { full_maps: Some(vec![full]), ..KernelFacts::default() })
    };
    let results = full("counts", 16, true);
    assert_eq!(found(&results), [Kind::CountsTooLow, Kind::MapFull]);
    let evidence = evidence_of(&results, Kind::CountsTooLow);
    assert!(evidence.ends_with("; map `counts`: 16 of 16 entries in use after phase `read`"), "{evidence}");
    // Its single key, or keys that it had from the beginning, may be meant: they are evidence only.
    for results in [full("counts", 1, true), full("counts", 16, false)] {
        assert_eq!(found(&results), [Kind::CountsTooLow]);
        assert!(evidence_of(&results, Kind::CountsTooLow).contains("entries in use"));
    }
    // The full map is another one.
    let results = full("start", 16, true);
    assert!(!evidence_of(&results, Kind::CountsTooLow).contains("in use"));
}

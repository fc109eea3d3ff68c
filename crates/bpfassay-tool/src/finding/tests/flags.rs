// SPDX-License-Identifier: MIT OR Apache-2.0
//! Missing bytes of vectored calls whose flags a program takes for the return value.

use bpfassay_protocol::checked_prototype::Checked;

use super::*;

fn takes_flags(program: &str, function: &str) -> Checked {
    let line =
        "takes argument 5 for a number of 64 bits, where the return value would be with one argument less: ssize_t f()";
    Checked {
        program: program.to_owned(),
        section: format!("fexit/{function}"),
        differs: vec![line.to_owned()],
        unchecked: None,
    }
}

/// Read and readv with 1000 bytes per call, writev with 10,000.
fn happened() -> Truth {
    truth(vec![
        share("a", "m", Operation::Read, 100, 100_000, 100_000),
        share("a", "m", Operation::Readv, 50, 50_000, 50_000),
        share("a", "m", Operation::Writev, 70, 700_000, 700_000),
    ])
}

/// Evaluates a tool with these programs that reported `bytes` for all of `operations`.
fn of(checked: &[Checked], operations: &[Operation], bytes: u64, truth: &Truth) -> Vec<FindingResult> {
    let (report, readings) =
        (report(vec![figure(operations, MOVED, Whose::Mount)]), readings(&[(100, 0, Some("m"), bytes)]));
    let evidence = Evidence {
        prototypes: Some(checked),
        report: Some(&report),
        readings: Some(&readings),
        truth: Some(truth),
        ..Evidence::default()
    };
    evaluate(&evidence, &ValueLimits::default())
}

const READS: [Operation; 2] = [Operation::Read, Operation::Readv];
const ALL: [Operation; 3] = [Operation::Read, Operation::Readv, Operation::Writev];

#[test]
fn what_is_missing_but_for_the_flags_is_named() {
    let wrong = [takes_flags("on_readv", "vfs_readv")];
    let why = "on_readv (fexit/vfs_readv) takes argument 5, the flags, for the bytes that a call returned";
    for (there, missing) in [(0, "exactly readv".to_owned()), (16, "all of readv but 16 bytes".to_owned())] {
        let results = of(&wrong, &READS, 100_000 + there, &happened());
        assert_eq!(found(&results), [Kind::PrototypeDiffers, Kind::OperationsNotSeen]);
        let evidence = evidence_of(&results, Kind::OperationsNotSeen);
        assert!(evidence.ends_with(&format!("really 150000: what is missing is {missing}: {why}")), "{evidence}");
        let FindingStatus::Found { certainty, .. } = status(&results, Kind::OperationsNotSeen) else { panic!() };
        assert_eq!(*certainty, Some(if there == 0 { Certainty::Proven } else { Certainty::Fitting }));
    }
    // A figure with readv alone.
    for (there, missing) in [(0, "nothing of readv"), (16, "what is missing is all of readv but 16 bytes")] {
        let results = of(&wrong, &[Operation::Readv], there, &happened());
        let evidence = evidence_of(&results, Kind::OperationsNotSeen);
        assert!(evidence.contains(&format!("really 50000: {missing}: {why}")), "{evidence}");
    }
}

#[test]
fn without_such_a_program_or_with_more_than_flags_can_be_it_is_not() {
    let wrong = [takes_flags("on_readv", "vfs_readv")];
    let too_low = |checked: &[Checked], bytes: u64, truth: &Truth| {
        let results = of(checked, &READS, bytes, truth);
        found(&results).into_iter().filter(|kind| *kind != Kind::PrototypeDiffers).eq([Kind::CountsTooLow])
    };
    assert!(too_low(&[], 100_016, &happened()));
    assert!(too_low(&[takes_flags("on_writev", "vfs_writev")], 100_016, &happened()));
    let mut other = takes_flags("on_readv", "vfs_readv");
    other.differs = vec!["reads argument 7 of 5: ssize_t f()".to_owned()];
    assert!(too_low(&[other], 100_016, &happened()));
    // 50 calls with all flags set.
    assert!(!too_low(&wrong, 100_000 + 50 * 511, &happened()));
    assert!(too_low(&wrong, 100_000 + 50 * 511 + 1, &happened()));
    // More bytes than readv moved.
    assert!(too_low(&wrong, 99_999, &happened()));
    // Any amount could be the flags of such short calls.
    let short = truth(vec![
        share("a", "m", Operation::Read, 100, 100_000, 100_000),
        share("a", "m", Operation::Readv, 50, 50 * 511, 50 * 511),
    ]);
    assert!(too_low(&wrong, 100_016, &short));
}

#[test]
fn both_directions_are_missing_together_where_both_are_taken_so() {
    let wrong = [takes_flags("on_readv", "vfs_readv"), takes_flags("on_writev", "vfs_writev")];
    let results = of(&wrong, &ALL, 100_010, &happened());
    let evidence = evidence_of(&results, Kind::OperationsNotSeen);
    let missing = "what is missing is all of readv and writev but 10 bytes: on_readv (fexit/vfs_readv) and on_writev (fexit/vfs_writev) take";
    assert!(evidence.contains(missing), "{evidence}");
    // The other operation has a correct program.
    let results = of(&wrong, &ALL, 800_010, &happened());
    assert!(evidence_of(&results, Kind::OperationsNotSeen).contains("all of readv but 10 bytes: on_readv"));
}

#[test]
fn how_many_bytes_are_there_has_the_bounds_of_the_truth() {
    let wrong = [takes_flags("on_readv", "vfs_readv")];
    let bounded = Truth {
        earlier: vec![share("a", "m", Operation::Read, 1, 30, 30)],
        optional: vec![share("a", "m", Operation::Read, 1, 4, 4)],
        ..happened()
    };
    let results = of(&wrong, &READS, 100_016, &bounded);
    let evidence = evidence_of(&results, Kind::OperationsNotSeen);
    assert!(evidence.contains("100016, really 149996 to 150030: what is missing is "), "{evidence}");
    // The value is exact within these bounds, but by chance.
    assert!(evidence.contains("exactly readv: on_readv"), "{evidence}");
    let results = of(&wrong, &READS, 100_116, &bounded);
    assert!(evidence_of(&results, Kind::OperationsNotSeen).contains("all of readv but 86 to 120 bytes"));
}

// SPDX-License-Identifier: MIT OR Apache-2.0
use bpfassay_protocol::with_causes;
use proptest::prelude::*;

use super::*;
use crate::{AccessOrder, Invocation, SummaryFormat};

fn tests(text: &str) -> Result<Vec<Options>, OptionsError> {
    parse(text, &Options::default(), &mut Output::default())
}

#[test]
fn tests_inherit_what_the_one_before_had() {
    let text = "anything\n ior Start \n  API = posix , blockSize=2m#note\n\n # a comment\nRUN\n\ttransferSize=64k\nrun\nIOR STOP\nblockSize=1";
    let tests = tests(text).unwrap();
    assert_eq!(tests.len(), 2);
    assert_eq!((tests[0].block_size, tests[0].transfer_size), (2 << 20, 256 << 10));
    assert_eq!((tests[1].block_size, tests[1].transfer_size), (2 << 20, 64 << 10));
}

#[test]
fn a_second_run_repeats_the_test_and_directives_after_the_last_make_one() {
    let tests = tests("IOR START\nsegmentCount=2\nRUN\nRUN\nsegmentCount=3\nIOR STOP\n").unwrap();
    assert_eq!(tests.iter().map(|test| test.segments).collect::<Vec<_>>(), [2, 2, 3]);
}

#[test]
fn a_script_without_directives_is_one_test_with_the_defaults() {
    assert_eq!(tests("IOR START\nIOR STOP\n").unwrap(), [Options::default()]);
}

#[test]
fn an_interfaces_options_reach_one_test_too_far_back() {
    let text = "IOR START\nRUN\nsegmentCount=2\nRUN\nuseO_DIRECT=1\nRUN\napi=MMAP\n--mmap.madv_pattern=1\nRUN\n--posix.odirect=0\nRUN\nIOR STOP\n";
    let tests = tests(text).unwrap();
    // The real IOR does the same. The third test loses its O_DIRECT to the fifth, because the
    // fourth uses another interface and made no copy. The second has the third's O_DIRECT.
    assert_eq!(tests.iter().map(|test| test.posix.direct).collect::<Vec<_>>()[..3], [false, true, false]);
    assert!(tests[3].mmap.pattern && tests[4].mmap.pattern);
}

#[test]
fn directives_about_output_are_for_the_whole_run() {
    let mut output = Output::default();
    parse("IOR START\nsummaryFormat=json,summaryFile=/x\nRUN\nIOR STOP", &Options::default(), &mut output).unwrap();
    assert_eq!(output, Output { format: SummaryFormat::Json, file: Some("/x".to_owned()) });
}

#[test]
fn what_is_not_given_with_each_test_comes_from_the_command_line() {
    let invocation = Invocation::parse(["-f", "x", "-o", "/mnt/t", "-i", "3"]).unwrap();
    let plan = invocation.plan(Some("IOR START\nrandomOffset=1,blockSize=1m\nRUN\nIOR STOP")).unwrap();
    let test = &plan.tests[0];
    assert_eq!((test.test_file.as_str(), test.repetitions, test.order), ("/mnt/t", 3, AccessOrder::Shuffled));
    assert!(test.write && test.read);
}

#[test]
fn errors_name_the_line() {
    for (text, expected) in [
        ("RUN\n", "the script has no line `IOR START`"),
        (
            "IOR START\n\nblockSize=1x\n",
            "line 3 of the script: IOR option `blockSize`: `1x` is not a number of bytes such as 8, 4k, 2m, 1g",
        ),
        (
            "IOR START\nfsync\n",
            "line 2 of the script: `fsync` is not a directive: write key=value, several separated by commas",
        ),
        (
            "IOR START\nfsync=1,\n",
            "line 2 of the script: `` is not a directive: write key=value, several separated by commas",
        ),
        (
            "IOR START\nfsync=1 2\n",
            "line 2 of the script: `fsync=1 2` is not a directive: write key=value, several separated by commas",
        ),
        ("IOR START\nfsync=2\n", "line 2 of the script: IOR option `fsync`: `2` is not 0 or 1"),
        ("IOR START\nfsnyc=1\n", "line 2 of the script: unknown IOR option `fsnyc`"),
        (
            "IOR START\nmemoryPerNode=80%\n",
            "line 2 of the script: IOR option `memoryPerNode` is not supported: remove it",
        ),
    ] {
        assert_eq!(with_causes(&tests(text).unwrap_err()), expected);
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,400}") {
        let _ = tests(&format!("IOR START\n{text}"));
    }

    #[test]
    fn any_directive_is_read_or_refused(
        lines in prop::collection::vec(("(blockSize|api|verbose|RUN|randomOffset|--posix.odirect|numTasks| )", "[ =,#]{0,2}", "[0-9a-zA-Z]{0,5}"), 0..12)
    ) {
        let text: String = lines.iter().map(|(key, middle, value)| format!("{key}{middle}{value}\n")).collect();
        if let Ok(tests) = tests(&format!("IOR START\n{text}IOR STOP\n")) {
            prop_assert!(!tests.is_empty());
        }
    }
}

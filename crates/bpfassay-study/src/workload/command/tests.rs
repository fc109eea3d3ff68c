// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;

fn spec() -> CommandSpec {
    let figure = |name: &str, location| MetricSpec {
        name: name.parse::<MetricName>().unwrap(),
        unit: "1/s".to_owned(),
        better: Better::Higher,
        location,
    };
    CommandSpec {
        source: Source::Guest("/bin/x".to_owned()),
        arguments: vec!["-v".to_owned()],
        deadline_ms: 1000,
        figures: vec![
            figure("pattern", ValueLocation::Pattern(r#""rate": "(?<value>\S+)/s""#.parse().unwrap())),
            figure("pointer", ValueLocation::Pointer("/jobs/0/iops".to_owned())),
        ],
        bytes: [(Operation::Write, ValueLocation::Pointer("/jobs/0/bytes".to_owned()))].into(),
    }
}

const OUTPUT: &str = r#"{"rate": "12.5/s", "jobs": [{"iops": 3, "bytes": 18446744073709551615}]}"#;

#[test]
fn numbers_are_found_by_pattern_and_by_pointer() {
    let spec = spec();
    let reported = spec.read(OUTPUT);
    let figures: Vec<_> = reported.figures.iter().map(|(figure, number)| (&*figure.name, number.clone())).collect();
    assert_eq!(figures, [("pattern", Ok(12.5)), ("pointer", Ok(3.0))]);
    assert_eq!(reported.bytes[&Operation::Write], Ok(u64::MAX));
    assert_eq!(spec.unreadable(OUTPUT), None);
}

#[test]
fn what_cannot_be_read_is_an_error_and_never_0() {
    let message = |output: &str| spec().unreadable(output).unwrap();
    let nothing = message("");
    assert!(nothing.contains("the figure pattern: `\"rate\": \"(?<value>\\S+)/s\"` has no match;"), "{nothing}");
    assert!(nothing.contains("the bytes of write: the output is no JSON document"), "{nothing}");
    assert!(nothing.ends_with("; it wrote nothing"), "{nothing}");
    let twice = message(&OUTPUT.replace("{\"iops", "{\"also\": {\"rate\": \"1/s\"}, \"iops"));
    assert!(twice.contains("has more than one match") && !twice.contains("pointer"), "{twice}");
    assert!(message(&OUTPUT.replace("12.5", "fast")).contains("`fast` is no number"));
    assert!(message(&OUTPUT.replace("12.5", "inf")).contains("`inf` is no number"));
    assert!(message(&OUTPUT.replace("3,", "\"3\",")).contains("there is no number at /jobs/0/iops"));
    assert!(message(&OUTPUT.replace("iops", "iop")).contains("there is nothing at /jobs/0/iops"));
    assert!(message(&OUTPUT.replace("18446744073709551615", "1.5")).contains("`1.5` is no whole number of bytes"));
    assert!(message(&OUTPUT.replace("18446744073709551615", "-1")).contains("`-1` is no whole number of bytes"));
    assert!(message(&"x".repeat(5000)).len() < 1000);
}

#[test]
fn a_guest_runs_the_program_where_it_lies() {
    let path = |workload: &Workload| match &workload.program {
        Program::Path { path } => path.clone(),
        other => panic!("{other:?}"),
    };
    let workload = spec().run("mine", Arch::X86_64).unwrap();
    assert_eq!((path(&workload).as_str(), workload.arguments.join(" ").as_str()), ("/bin/x", "-v"));
    assert_eq!((workload.summary, workload.control, workload.deadline_ms), (SummarySource::Output, false, Some(1000)));
    let binary = Source::Binary(vec![bpfassay_tool::Binary {
        arch: Arch::Aarch64,
        kernels: Vec::new(),
        path: "a".to_owned(),
        libraries: None,
    }]);
    let spec = CommandSpec { source: binary, ..spec() };
    let workload = spec.run("mine", Arch::Aarch64).unwrap();
    // This path cannot collide with a tool, because tool names have no `_`.
    assert_eq!(path(&workload), "/tools/workload_mine/program");
    assert_eq!(spec.run("mine", Arch::X86_64).unwrap_err(), "its file has no program for x86_64");
}

proptest! {
    #[test]
    fn any_output_is_survived(output: String) {
        let spec = spec();
        prop_assert!(spec.unreadable(&output).is_some());
    }
}

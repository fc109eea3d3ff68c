// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code coverage of eBPF programs in real guests. Lines that the workload executes once per call
//! have exactly as many executions, and lines that cannot run have none. Programs without known
//! lines have the reason.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{env, fs, path::Path};

use serde_json::Value;

use crate::common::{bpfassay, guests_wanted, printed, results, study, wrong_tools};

/// Calls of each operation in a run, all of one size: the study's `-t 12k -b 3m`.
const CALLS: u64 = 256;
const RUNS: u64 = 2;

/// Returns the lines of `program` by their trimmed texts: executions and outcomes of branches.
fn lines<'a>(cell: &'a Value, program: &str) -> Vec<(&'a str, u64, Vec<Vec<u64>>)> {
    let coverage = &cell["code_coverage"]["value"];
    assert_eq!(coverage["runs"], RUNS, "{cell:#}");
    let programs = coverage["programs"].as_array().unwrap();
    let of_name = |found: &&Value| found["program"] == program && found["lines"]["value"].is_object();
    let found = programs.iter().find(of_name).unwrap_or_else(|| panic!("no {program}: {coverage:#}"));
    let lines = &found["lines"]["value"];
    assert!(lines["files"].as_array().unwrap().iter().all(|file| file.as_str().unwrap().ends_with(".c")), "{lines:#}");
    let numbers = |outcomes: &Value| outcomes.as_array().map(|all| all.iter().filter_map(Value::as_u64).collect());
    let line = |line: &'a Value| {
        let branches = line["branches"].as_array().into_iter().flatten();
        let outcomes = branches.filter_map(|branch| numbers(&branch["outcomes"])).collect();
        (line["text"].as_str().unwrap().trim(), line["executions"].as_u64().unwrap(), outcomes)
    };
    lines["lines"].as_array().unwrap().iter().map(line).collect()
}

/// Runs `study` with `arguments`, and returns its results.
fn run(directory: &Path, study: &Path, arguments: &[&str]) -> Value {
    let mut command = bpfassay(directory);
    command.args(["run", "--yes"]);
    if let Some(manifest) = env::var_os("BPFASSAY_TEST_MANIFEST") {
        command.arg("--manifest").arg(manifest);
    }
    let output = command.arg(study).args(["--output", "out"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    results(&directory.join("out"))
}

/// Returns the measured cells with something under test, the reasons why lines of their programs
/// are not known, and the number of programs.
fn measured(results: &Value) -> Vec<(&Value, Vec<&str>, usize)> {
    let cells = results["cells"].as_array().unwrap().iter();
    let (probed, baselines): (Vec<_>, Vec<_>) =
        cells.partition(|cell| cell["probe"] != "none" || cell["tool"].is_string());
    assert!(baselines.iter().all(|cell| cell["code_coverage"].is_null()));
    let mut found = Vec::new();
    for cell in probed.into_iter().filter(|cell| cell["runs"]["measured"] != 0) {
        let programs = cell["code_coverage"]["value"]["programs"].as_array().unwrap_or_else(|| panic!("{cell:#}"));
        let reasons = programs.iter().filter_map(|program| program["lines"]["not_measured"].as_str()).collect();
        found.push((cell, reasons, programs.len()));
    }
    found
}

#[test]
fn lines_ran_as_often_as_the_workload_made_calls_or_never() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/coverage");
    fs::copy(sources.join("branches.toml"), directory.path().join("branches.toml")).unwrap();
    let object = directory.path().join("branches.bpf.o");
    wrong_tools::compile(&wrong_tools::clang(), &sources.join("branches.bpf.c"), &[], &object);
    let results = run(directory.path(), &study("code-coverage.toml"), &["--tool", "branches.toml"]);
    let cells = measured(&results);
    assert_eq!(cells.len(), 6, "two loaders and the tool on two architectures");
    for (cell, reasons, programs) in cells {
        let place = cell["cell"].as_str().unwrap();
        if cell["probe"].as_str().unwrap().ends_with("@aya") {
            assert!(programs > 0 && reasons.len() == programs, "{cell:#}");
            assert!(reasons.iter().all(|reason| reason.contains("without line information")), "{place}: {reasons:?}");
            continue;
        }
        assert_eq!(reasons, [""; 0], "{place}");
        if cell["tool"] == "branches" {
            branches(cell, place);
        }
    }
    let output = bpfassay(directory.path()).args(["report", "out", "--format", "lcov"]).output().unwrap();
    let tracefile = String::from_utf8(output.stdout).unwrap();
    for expected in ["branches.bpf.c\n", &format!(",{}\n", CALLS * RUNS), "# not measured: ", "end_of_record\n"] {
        assert!(tracefile.contains(expected), "{expected:?}: {tracefile}");
    }
}

/// Checks the lines of tests/coverage/branches.bpf.c.
fn branches(cell: &Value, place: &str) {
    let all = CALLS * RUNS;
    let on_read = lines(cell, "on_read");
    let of = |text: &str| {
        let found = on_read.iter().find(|(line, ..)| line.starts_with(text));
        found.unwrap_or_else(|| panic!("{place}: no {text}: {on_read:?}"))
    };
    // Reads of another size belong to other processes. Compilers invert conditions, so the jump is
    // the expected case.
    let (_, others, _) = of("others += 1;");
    let (_, executions, outcomes) = of("if (requested != SIZE)");
    assert_eq!((*executions, outcomes.as_slice()), (all + others, [vec![all, *others]].as_slice()), "{on_read:?}");
    let (_, executions, outcomes) = of("if (returned > SIZE)");
    assert_eq!((*executions, outcomes.as_slice()), (all, [vec![all, 0]].as_slice()), "{place}: {on_read:?}");
    assert_eq!((of("impossible += returned;").1, of("add(returned);").1), (0, all), "{place}: {on_read:?}");
    // The line belongs to a function that is not inlined.
    assert_eq!(of("right += returned;").1, all, "{place}: {on_read:?}");
    let on_write = lines(cell, "on_write");
    let written = on_write.iter().find(|(line, ..)| line.starts_with("right += ctx[4];")).unwrap();
    assert_eq!(written.1, all, "{place}: {on_write:?}");
    // A program that never ran is listed, too.
    let on_allocate = lines(cell, "on_allocate");
    assert!(
        !on_allocate.is_empty() && on_allocate.iter().all(|(_, executions, _)| *executions == 0),
        "{on_allocate:?}"
    );
}

/// Debian's kernels for riscv64 interpret programs.
#[test]
fn programs_that_the_kernel_interprets_have_the_reason() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let results = run(directory.path(), &study("direct.toml"), &["--arch", "riscv64"]);
    let cells = measured(&results);
    assert!(!cells.is_empty());
    for (cell, reasons, programs) in cells {
        assert!(programs > 0 && reasons.len() == programs, "{cell:#}");
        assert!(reasons.iter().all(|reason| reason.contains("interprets the program")), "{reasons:?}");
    }
}

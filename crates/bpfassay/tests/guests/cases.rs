// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inputs on which bpfassay once said something false: wrong summaries of a real IOR, scripts whose
//! tests share files, and programs that a tool assembles at run time.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test fails by panicking")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::common::{faults, guests_wanted, printed, results, study, uncounted};

/// Sources of the tools, and of the program that stands for IOR.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// Runs the study `name` into `out` of `directory`, with `arguments`.
fn run(directory: &Path, name: &str, arguments: &[&str]) -> (Output, Value) {
    let mut command = uncounted(directory);
    let output = command.args(["run", "--yes", "--output", "out"]).args(arguments).arg(study(name)).output().unwrap();
    println!("{}", printed(&output));
    (output, results(&directory.join("out")))
}

/// Kinds of fault that are found of `cell`'s tool.
fn found(cell: &Value) -> Vec<&str> {
    faults(cell).into_iter().map(|fault| fault["kind"].as_str().unwrap()).collect()
}

#[test]
fn a_wrong_summary_of_ior_is_not_measured() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("ior/bin")).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-static", "-O2", "-o"]).arg(directory.path().join("ior/bin/ior"));
    assert!(compiler.arg(sources().join("summaries.c")).status().unwrap().success());
    let (output, results) = run(directory.path(), "summaries.toml", &["--ior", "x86_64=ior"]);
    assert_eq!(output.status.code(), Some(4), "{}", printed(&output));
    let text = |value: &Value| value["not_measured"].as_str().unwrap_or_default().to_owned();
    for (case, reason) in
        [("right", ""), ("no-time", "of the whole run"), ("no-json", "summary is not valid"), ("too-fast", "MiB")]
    {
        let cells = results["cells"].as_array().unwrap().iter().filter(|cell| cell["case"] == case);
        let reasons: Vec<String> = cells.map(|cell| text(&cell["metrics"][0]["value"])).collect();
        assert_eq!(reasons.len(), 2, "{case}");
        let is_wanted = |one: &String| one.contains(reason) && one.is_empty() == reason.is_empty();
        assert!(reasons.iter().all(is_wanted), "{case}: {reasons:?}");
    }
}

#[test]
fn a_script_is_one_run_and_keeps_its_files() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (output, results) = run(directory.path(), "scripts.toml", &[]);
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    // Each test of a script, and the bytes that it moves.
    let half = ["write", "write", "read"].map(|phase| (phase, 512 << 10));
    let whole = ["write", "read"].map(|phase| (phase, 1 << 20));
    for (case, tests) in [("overwrite-and-reread", half.as_slice()), ("write-then-read", &whole)] {
        let cells = results["cells"].as_array().unwrap().iter().filter(|cell| cell["case"] == case);
        let [traced] = cells.filter(|cell| cell["counts"] == "returned").collect::<Vec<_>>()[..] else {
            panic!("{case}: no traced cell")
        };
        let records = results["runs"].as_array().unwrap().iter().map(|run| &run["record"]);
        let [run] = records.filter(|run| run["cell"] == traced["cell"]).collect::<Vec<_>>()[..] else {
            panic!("{case}: a script is one run")
        };
        let moved = |phase: &'_ Value| {
            let name = phase["name"].as_str().unwrap().to_owned();
            let bytes = phase["moved"][&name]["bytes"].as_u64().unwrap();
            (name, bytes)
        };
        let phases: Vec<(String, u64)> = run["outcome"]["phases"].as_array().unwrap().iter().map(moved).collect();
        assert_eq!(phases, tests.iter().map(|&(name, bytes)| (name.to_owned(), bytes)).collect::<Vec<_>>(), "{case}");
        let error = &traced["accuracy"][0]["byte_error"]["value"];
        let all: Value = tests.len().into();
        assert_eq!((&error["intervals"], &error["exact"]), (&all, &all), "{case}");
    }
}

/// The directory of the packages in ci/python.txt, which `ci/test --all` unpacks. `None` outside of
/// ci/test.
fn python_packages() -> Option<PathBuf> {
    let packages = env::var_os("BPFASSAY_PYTHON_PACKAGES").map(PathBuf::from);
    let required = env::var("BPFASSAY_TEST_PROGRAMS").is_ok_and(|value| value == "required");
    assert!(packages.is_some() || !required, "BPFASSAY_PYTHON_PACKAGES is not set: see ci/test");
    packages
}

#[test]
fn programs_that_python_assembles_are_counted() {
    if !guests_wanted() {
        return;
    }
    let Some(packages) = python_packages() else { return };
    let directory = tempfile::tempdir().unwrap();
    for name in ["assembled.py", "assembled.toml"] {
        fs::copy(sources().join(name), directory.path().join(name)).unwrap();
    }
    let package = directory.path().join("ebpfcat");
    fs::create_dir(&package).unwrap();
    for module in ["__init__.py", "arraymap.py", "bpf.py", "ebpf.py", "util.py"] {
        fs::copy(packages.join("ebpfcat").join(module), package.join(module)).unwrap();
    }
    // Functions that no kernel has.
    let text = fs::read_to_string(directory.path().join("assembled.toml")).unwrap();
    let text = text.replace("\"assembled\"", "\"nowhere\"").replace("\"{script}\"]", "\"{script}\", \"vfs_no_\"]");
    fs::write(directory.path().join("nowhere.toml"), text.replace("/tools/assembled", "/tools/nowhere")).unwrap();
    let tools = ["--tool", "assembled.toml", "--tool", "nowhere.toml"];
    let (_, results) = run(directory.path(), "wrong-tools.toml", &[&["--arch", "x86_64,aarch64"], &tools[..]].concat());
    for cell in results["cells"].as_array().unwrap().iter().filter(|cell| !cell["tool"].is_null()) {
        let name = &cell["cell"];
        if cell["tool"] == "nowhere" {
            assert_eq!(found(cell), ["does-not-start"], "{name}: {cell:#}");
            assert!(cell["attach"].to_string().contains("perf_event_open of vfs_no_read"), "{cell:#}");
            continue;
        }
        // A kretprobe of a perf event does not say how many returns it missed.
        let findings = cell["tool_result"]["findings"].as_array().unwrap();
        let missed = findings.iter().find(|finding| finding["kind"] == "missed-probes").unwrap();
        assert_eq!((found(cell), &missed["status"]), (vec![], &"not-evaluated".into()), "{name}: {cell:#}");
        let figures = cell["tool_result"]["figures"].as_array().unwrap();
        assert!(figures.iter().any(|figure| figure["reported"].as_u64() > Some(0)), "{name}: {figures:#?}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures by process and thread in a guest: each process of a workload has its own truth, whatever the workload is and
//! whatever a tool calls processes by.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use crate::common::{bpfassay, guests_wanted, printed, results, study, without_plugins, wrong_tools};

/// The right tool `by-id` as one that loses every second read: its name.
fn lossy(directory: &Path) -> &'static str {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/right-tools/by-id.bpf.c");
    wrong_tools::compile(&wrong_tools::clang(), &source, &["-DLOSES"], &directory.join("lossy.bpf.o"));
    let text = fs::read_to_string(directory.join("by-id.toml")).unwrap();
    fs::write(directory.join("lossy.toml"), text.replace("\"by-id\"", "\"lossy\"").replace("by-id.", "lossy."))
        .unwrap();
    "lossy"
}

/// What `cell`'s tool has of the calls of each process: its name, what was reported, and what happened.
fn calls(cell: &Value) -> Vec<(&str, u64, u64)> {
    let figures = cell["tool_result"]["figures"].as_array().unwrap().iter();
    let of_calls = figures.filter(|figure| figure["figure"] == "calls" && figure["operations"][0] == "read");
    let number = |figure: &Value, key: &str| figure[key].as_u64().unwrap();
    of_calls
        .map(|figure| (figure["subject"].as_str().unwrap(), number(figure, "reported"), number(figure, "really")))
        .collect()
}

/// The findings of `cell`'s tool.
fn found(cell: &Value) -> Vec<&Value> {
    let findings = cell["tool_result"]["findings"].as_array().unwrap().iter();
    findings.filter(|finding| finding["status"] == "found").collect()
}

#[test]
fn processes_are_compared_by_ids_and_names() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    wrong_tools::build("right-tools", directory.path());
    let programs = tempfile::tempdir().unwrap();
    let mut command = bpfassay(directory.path());
    command.args(["run", "--yes", "--output", "out"]).arg(study("processes.toml"));
    for tool in ["by-id", "by-process", lossy(directory.path())] {
        command.arg("--tool").arg(format!("{tool}.toml"));
    }
    let output = command.env("PATH", without_plugins(programs.path())).output().unwrap();
    println!("{}", printed(&output));
    let results = results(&directory.path().join("out"));
    let cell = |case: &str, tool: &str| {
        let mut cells = results["cells"].as_array().unwrap().iter();
        cells.find(|cell| cell["case"] == case && cell["tool"] == tool).unwrap()
    };
    for tool in ["by-id", "by-process"] {
        for case in ["ranks", "forks"] {
            let cell = cell(case, tool);
            assert!(found(cell).is_empty(), "{case} {tool}: {:#?}", found(cell));
            let not_compared = &cell["tool_result"]["not_compared"];
            assert!(not_compared.as_array().is_none_or(Vec::is_empty), "{case} {tool}: {not_compared:#}");
        }
    }
    // Each rank reads a file of 64 KiB by 4 KiB.
    let runs = results["runs"].as_array().unwrap().iter().map(|run| &run["record"]);
    let of_ranks: Vec<&Value> =
        runs.filter(|run| run["has_reference"] == true && run["cell"] == cell("ranks", "by-id")["cell"]).collect();
    let [run] = of_ranks.as_slice() else { panic!("{of_ranks:#?}") };
    let tasks = run["outcome"]["phases"][0]["tasks"].as_array().unwrap();
    let ranks: BTreeSet<String> = tasks.iter().map(|task| task["process"].to_string()).collect();
    assert!(ranks.len() >= 2 && tasks.iter().all(|task| task["name"] == "ior"), "{tasks:#?}");
    let reads = |case: &str, tool: &str, names: &dyn Fn(&str) -> bool, least: u64| {
        let all = calls(cell(case, tool));
        let those = all.iter().filter(|(name, _, really)| names(name) && *really >= least);
        let exact: BTreeSet<&str> = those.filter(|(_, is, really)| is == really).map(|(name, ..)| *name).collect();
        assert!(!exact.is_empty(), "{case} {tool}: {all:?}");
        exact.len()
    };
    assert_eq!(reads("ranks", "by-id", &|name| ranks.contains(name), 16), 2);
    reads("ranks", "by-process", &|name| name == "ior", 32);
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    assert!(reads("forks", "by-id", &is_number, 300) >= 2);
    reads("forks", "by-process", &|name| name == "other", 300);
    reads("forks", "by-process", &|name| name == "perl", 500);
    for case in ["ranks", "forks"] {
        let found = found(cell(case, "lossy"));
        let kinds: Vec<&str> = found.iter().map(|finding| finding["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["counts-too-low"], "{case}: {found:#?}");
    }
}

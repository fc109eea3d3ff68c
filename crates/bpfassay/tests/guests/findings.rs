// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings that need no comparison with the truth are found in wrong tools, and in no tool of
//! Debian, and budgets are exceeded by large tools alone, on two kernels of two architectures.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;

use crate::common::{
    bpfassay, finding, guests_wanted, printed, results, study, tool_cells, without_plugins, wrong_tools,
};

/// Runs the tools of the directory `of`, which are `wrong`, and `right` ones, and asserts that the
/// finding `kind` is found in the wrong tools and clear in the right ones. Returns the findings
/// with the names of the tools.
fn found_in_wrong_tools(kind: &str, of: &str, wrong: &[&str], right: &[&str]) -> Vec<(String, Value)> {
    let directory = tempfile::tempdir().unwrap();
    wrong_tools::build(of, directory.path());
    let wrong_ones = wrong.iter().map(|name| format!("--tool={name}.toml"));
    let tools: Vec<String> = wrong_ones.chain(right.iter().map(|name| format!("--tool={name}"))).collect();
    let study = study("every-tool.toml").display().to_string();
    let command = ["run", &study, "--arch", "x86_64,aarch64", "--kernel", "6.1,7.2"].into_iter();
    let command: Vec<&str> = command.chain(tools.iter().map(String::as_str)).collect();
    let mut all = Vec::new();
    for cell in tool_cells(directory.path(), "out", &command, 0) {
        let tool = cell["tool"].as_str().unwrap();
        let finding = finding(&cell, kind);
        let expected = if wrong.contains(&tool) { "found" } else { "clear" };
        assert_eq!(finding["status"], expected, "{tool} on {}: {finding:#}", cell["target"]);
        all.push((tool.to_owned(), finding.clone()));
    }
    assert_eq!(all.len(), 4 * (wrong.len() + right.len()));
    all
}

#[test]
fn impossible_durations_are_found_and_possible_ones_are_not() {
    if !guests_wanted() {
        return;
    }
    let wrong = ["swapped", "two-clocks", "wrong-time-unit", "wrong-sum"];
    let right = ["nfsdist-libbpf", "funclatency-libbpf", "fsdist-libbpf"];
    for (tool, finding) in found_in_wrong_tools("impossible-durations", "wrong-durations", &wrong, &right) {
        let is_sum = finding["evidence"].to_string().contains(" values add up to at least ");
        assert_eq!(is_sum, tool == "wrong-sum", "{tool}: {finding:#}");
    }
}

#[test]
fn full_maps_are_found_and_maps_with_room_are_not() {
    if !guests_wanted() {
        return;
    }
    let wrong = ["growing", "script-map", "few-keys"];
    let right = ["filetop-libbpf", "nfsdist-libbpf", "opensnoop.bt"];
    for (tool, finding) in found_in_wrong_tools("map-full", "wrong-maps", &wrong, &right) {
        if tool == "growing" {
            let evidence = finding["evidence"][0].as_str().unwrap();
            assert!(evidence.starts_with("map `counts`: 900 of 900 entries in use after phase `"), "{evidence}");
        }
    }
}

#[test]
fn large_tools_exceed_budgets_and_small_ones_keep_them() {
    if !guests_wanted() {
        return;
    }
    let large = ["nfsdist-libbpf", "capable.bt", "setuids.bt"];
    let small = ["vfsstat-libbpf", "softirqs-libbpf", "loads.bt"];
    let directory = tempfile::tempdir().unwrap();
    let programs = tempfile::tempdir().unwrap();
    let mut command = bpfassay(directory.path());
    command.args(["check", "--yes", "--output", "out", "--arch", "x86_64,aarch64", "--kernel", "6.12,7.2"]);
    command.args([
        "--gate",
        "jited_bytes=3000",
        "--gate",
        "verified_instructions=100000",
        "--gate",
        "map_bytes=100000000",
    ]);
    command.args(large.iter().chain(&small));
    let output = command.env("PATH", without_plugins(programs.path())).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", printed(&output));
    let results = results(&directory.path().join("out"));
    let gates = results["gates"].as_array().unwrap();
    for gate in gates {
        let is_large = large.iter().any(|tool| gate["cell"].as_str().unwrap().ends_with(tool));
        let verdict = if gate["gate"] == 0 && is_large { "regression" } else { "pass" };
        assert_eq!(gate["verdict"], verdict, "{gate:#}");
    }
    assert_eq!(gates.len(), 3 * 4 * (large.len() + small.len()), "{}", printed(&output));
}

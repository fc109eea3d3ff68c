// SPDX-License-Identifier: MIT OR Apache-2.0
//! Impossible durations are found in scripts that subtract wrongly, and in no tool of Debian that
//! shows durations, on two kernels of two architectures.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{bpfassay, guests_wanted, printed, results, study, without_plugins, wrong_tools};

const WRONG: [&str; 3] = ["swapped", "two-clocks", "wrong-time-unit"];
const RIGHT: [&str; 3] = ["nfsdist-libbpf", "funclatency-libbpf", "fsdist-libbpf"];

#[test]
fn impossible_durations_are_found_and_possible_ones_are_not() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    wrong_tools::build("wrong-durations", directory.path());
    let programs = tempfile::tempdir().unwrap();
    let mut command = bpfassay(directory.path());
    command.args(["run", "--yes", "--output", "out", "--arch", "x86_64,aarch64", "--kernel", "6.1,7.2"]);
    command.args(WRONG.map(|name| format!("--tool={name}.toml"))).args(RIGHT.map(|name| format!("--tool={name}")));
    command.arg(study("every-tool.toml"));
    let output = command.env("PATH", without_plugins(programs.path())).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    let results = results(&directory.path().join("out"));
    let cells = results["cells"].as_array().unwrap().iter().filter(|cell| cell["tool"].is_string());
    let mut seen = 0;
    for cell in cells {
        let tool = cell["tool"].as_str().unwrap();
        let findings = cell["tool_result"]["findings"].as_array().unwrap();
        let finding = findings.iter().find(|finding| finding["kind"] == "impossible-durations").unwrap();
        let expected = if WRONG.contains(&tool) { "found" } else { "clear" };
        assert_eq!(finding["status"], expected, "{tool} on {}: {finding:#}", cell["target"]);
        seen += 1;
    }
    assert_eq!(seen, 4 * (WRONG.len() + RIGHT.len()), "{}", printed(&output));
}

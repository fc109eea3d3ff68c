// SPDX-License-Identifier: MIT OR Apache-2.0
//! Updates of shared maps that are not atomic are found in the instructions of programs, and the
//! counts that they lose on several CPUs are lost again with the same seed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{finding, guests_wanted, tool_cells, under_load, wrong_tools};

const RACY: [&str; 6] = ["plus-equals", "compare-and-set", "update", "two-maps", "met", "at-plus-one"];
const RIGHT: [&str; 6] = ["atomic", "per-cpu", "by-thread", "locked", "at-count", "at-sum"];

#[test]
fn racy_updates_are_found_in_programs_and_none_in_right_ones() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    wrong_tools::build("races", directory.path());
    let tools: Vec<String> = RACY.iter().chain(&RIGHT).map(|name| format!("{name}.toml")).collect();
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let command = ["check", "--arch", "x86_64,aarch64", "--kernel", "6.12,7.2"];
    let cells = tool_cells(directory.path(), "out", &[&command[..], &tools].concat(), 0);
    for cell in &cells {
        let tool = cell["tool"].as_str().unwrap();
        let finding = finding(cell, "racy-update");
        let expected = if RACY.contains(&tool) { "found" } else { "clear" };
        assert_eq!(finding["status"], expected, "{tool} on {}: {finding:#}", cell["target"]);
        if tool == "plus-equals" {
            let line = finding["evidence"][0].as_str().unwrap();
            assert!(line.ends_with("plus-equals.bpf.c:12: value->calls += 1;"), "{line}");
        }
    }
    assert_eq!(cells.len(), 4 * tools.len());
}

/// The third execution shares the processors of the host with other programs.
#[test]
fn counts_that_race_are_lost_again_with_the_same_seed() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    wrong_tools::build("races", directory.path());
    let command = ["check", "--races", "1", "plus-equals.toml", "at-plus-one.toml", "atomic.toml"];
    let run = |output| tool_cells(directory.path(), output, &command, 0);
    let first = run("first");
    for cell in &first {
        let tool = cell["tool"].as_str().unwrap();
        let (racy, low) = (finding(cell, "racy-update"), finding(cell, "counts-too-low"));
        let expected = if RACY.contains(&tool) { ("found", "proven") } else { ("clear", "") };
        assert_eq!(racy["status"], expected.0, "{tool}: {racy:#}");
        assert_eq!(racy["certainty"].as_str().unwrap_or_default(), expected.1, "{tool}: {racy:#}");
        assert_eq!(low["status"], "clear", "{tool}: {low:#}");
    }
    for again in [run("second"), under_load(|| run("third"))] {
        for (cell, again) in first.iter().zip(&again) {
            let cell_name = (&cell["tool"], &cell["target"]);
            assert_eq!(cell["tool_result"]["figures"], again["tool_result"]["figures"], "{cell_name:?}");
        }
        assert_eq!((first.len(), again.len()), (6, 6));
    }
}

/// A thread of the host for each CPU is the second witness.
#[test]
fn counts_that_race_are_lost_by_the_wall_clock_too() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    wrong_tools::build("races", directory.path());
    let command = ["run", "races", "--clock", "wall", "--arch", "x86_64", "--replicates", "1"];
    let cells =
        tool_cells(directory.path(), "out", &[&command[..], &["--tool=update.toml", "--tool=atomic.toml"]].concat(), 0);
    for cell in &cells {
        let racy = finding(cell, "racy-update");
        let expected = if cell["tool"] == "update" { ("found", "proven") } else { ("clear", "") };
        let found = (racy["status"].as_str().unwrap(), racy["certainty"].as_str().unwrap_or_default());
        assert_eq!(found, expected, "{racy:#}");
    }
    assert_eq!(cells.len(), 2);
}

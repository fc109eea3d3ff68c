// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deliberately wrong tools in guests of the three architectures: what is wrong with each is found, and named. Right ones beside them: nothing is
//! found of these.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/wrong_tools.rs"]
mod wrong_tools;

use std::{fs, path::Path};

use common::{bpfassay, guests_wanted, printed, results, study, without_plugins};
use serde_json::Value;

/// Tools, and what has to be found of each.
const FAULTS: [(&str, &str); 21] = [
    ("argument-for-return", "prototype-differs"),
    ("backwards", "counts-go-backwards"),
    ("dropping", "counts-too-low"),
    ("events-lost", "events-dropped"),
    ("evicting", "counts-vanish"),
    ("first-touch", "first-touch-lost"),
    ("idle-cpu", "idle-cpu"),
    ("memory-held", "memory-held"),
    ("merged-cgroups", "cgroups-merged"),
    ("merged-mounts", "mounts-merged"),
    ("missed-probes", "missed-probes"),
    ("no-detach", "left-behind"),
    ("not-attaching", "does-not-attach"),
    ("not-loading", "does-not-load"),
    ("requested", "requested-as-moved"),
    ("slow-attach", "slow-attach"),
    ("slow-detach", "slow-detach"),
    ("too-high", "counts-too-high"),
    ("unreadable", "unreadable"),
    ("unseeing", "operations-not-seen"),
    ("wrong-arity", "prototype-differs"),
];

/// Tools of which nothing may be found.
const RIGHT: [&str; 7] = ["by-cgroup", "by-mount", "by-process", "configured", "events", "of-system", "two-maps"];

/// One of them without the contents of its maps and constants: it counts nothing.
const UNCONFIGURED: &str = "unconfigured";

/// Findings that follow from amounts alone.
const BY_AMOUNT: [&str; 8] = [
    "cgroups-merged",
    "counts-too-high",
    "counts-too-low",
    "events-dropped",
    "first-touch-lost",
    "mounts-merged",
    "operations-not-seen",
    "subject-unknown",
];

/// Kinds of fault that are found of `cell`'s tool, with their evidence.
fn found(cell: &Value) -> Vec<(&str, &Value)> {
    let findings = cell["tool_result"]["findings"].as_array().unwrap();
    let found = findings.iter().filter(|finding| finding["status"] == "found");
    found.map(|finding| (finding["kind"].as_str().unwrap(), &finding["evidence"])).collect()
}

/// The cell of `tool` on `arch`.
fn cell<'r>(results: &'r Value, tool: &str, arch: &str) -> &'r Value {
    let mut cells = results["cells"].as_array().unwrap().iter();
    cells.find(|cell| cell["tool"] == tool && cell["target"]["arch"] == arch).unwrap()
}

/// The tool `configured` without what it sets, as a loader would leave it that does not know its maps.
fn unconfigured(directory: &Path) -> String {
    let text = fs::read_to_string(directory.join("configured.toml")).unwrap();
    let mut text = text.replace("name = \"configured\"", &format!("name = \"{UNCONFIGURED}\""));
    let (start, end) = (text.find("set = [").unwrap(), text.find("[report]").unwrap());
    text.replace_range(start..end, "");
    fs::write(directory.join(format!("{UNCONFIGURED}.toml")), text).unwrap();
    UNCONFIGURED.to_owned()
}

#[test]
fn what_is_wrong_with_a_tool_is_named_on_every_architecture() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let tools = wrong_tools::build("wrong-tools", directory.path());
    assert_eq!(tools, FAULTS.map(|(tool, _)| tool));
    let mut right = wrong_tools::build("right-tools", directory.path());
    assert_eq!(right, RIGHT);
    right.push(unconfigured(directory.path()));
    // No fault is found by what the plugin counts.
    let programs = tempfile::tempdir().unwrap();
    let path = without_plugins(programs.path());
    let tested = |name: &str, out: &str, tools: &mut dyn Iterator<Item = &String>| {
        let mut command = bpfassay(directory.path());
        command.args(["run", "--yes", "--output", out]).arg(study(name)).env("PATH", &path);
        for tool in tools {
            command.arg("--tool").arg(directory.path().join(format!("{tool}.toml")));
        }
        let output = command.output().unwrap();
        (results(&directory.path().join(out)), printed(&output))
    };
    // Requested bytes are others than moved ones only where reads are short.
    let short = |tool: &&String| *tool == "requested";
    let (by_ior, said_by_ior) =
        tested("wrong-tools.toml", "out", &mut tools.iter().filter(|tool| !short(tool)).chain(&right));
    let (by_paths, said_by_paths) = tested("requested-bytes.toml", "short", &mut tools.iter().filter(short));
    let mut wrong = Vec::new();
    for arch in ["x86_64", "aarch64", "riscv64"] {
        for tool in RIGHT {
            let cell = cell(&by_ior, tool, arch);
            let found = found(cell);
            if !found.is_empty() || cell["attach"]["outcome"] != "attached" {
                wrong.push(format!("{arch} {tool}: nothing is wrong with it, but {found:?}"));
            }
            // What could not be compared would be nothing as well.
            let figures = cell["tool_result"]["figures"].as_array().unwrap();
            if figures.is_empty() || figures.iter().all(|figure| figure["reported"] == 0) {
                wrong.push(format!("{arch} {tool}: nothing of it was compared: {figures:?}"));
            }
        }
        for (tool, fault) in FAULTS.into_iter().chain([(UNCONFIGURED, "operations-not-seen")]) {
            let results = if tool == "requested" { &by_paths } else { &by_ior };
            let cell = cell(results, tool, arch);
            let found = found(cell);
            if !found.iter().any(|(kind, _)| *kind == fault) {
                wrong.push(format!("{arch} {tool}: no {fault}, but {found:?}"));
            }
            // Names by amounts are given once, and to what has them.
            for (kind, evidence) in found.iter().filter(|(kind, _)| *kind != fault && BY_AMOUNT.contains(kind)) {
                // These have no figure of some operations, and that is true.
                let is_unreported = |line: &Value| line.as_str().unwrap().starts_with("no figure counts ");
                if ["argument-for-return", "requested"].contains(&tool)
                    && evidence.as_array().unwrap().iter().all(is_unreported)
                {
                    continue;
                }
                wrong.push(format!("{arch} {tool}: {kind} beside {fault}: {evidence}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), said_by_ior + &said_by_paths);
}

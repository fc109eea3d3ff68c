// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scripts in `ci/records/` that make tables of results.json, tested on results of this
//! version: a missing key is an error.
//!
//! They need jq. If it is missing, the test prints a message, and fails if
//! `BPFASSAY_TEST_PROGRAMS=required` is set, as `ci/test` does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints what it skips"
)]

use std::{
    collections::BTreeSet,
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

use bpfassay_protocol::{Arch, tracer_messages::ProgramStatistics};
use bpfassay_report::derive;
use bpfassay_results::{Outcome, Results};
use bpfassay_study::{Clock, Study};
use serde_json::{Value, json};

use crate::common::{contents, made_up, outcome, quick, study};

const CI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/records");

/// Whether jq is installed.
fn is_testable() -> bool {
    let found = Command::new("jq").arg("--version").stdout(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return true;
    }
    let required = env::var_os("BPFASSAY_TEST_PROGRAMS").is_some_and(|value| value == "required");
    assert!(!required, "jq does not work: install it");
    println!("SKIPPED: jq does not work: install it");
    false
}

/// Runs `script` on `results`; returns its success and output.
fn run(script: &str, results: &Value) -> (bool, String) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("results.json"), results.to_string()).unwrap();
    let output = Command::new(Path::new(CI).join(script)).arg(directory.path()).output().unwrap();
    let shown = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(shown).unwrap())
}

/// Creates results of two targets of `quick`: direct costs, controls, and a refusal.
fn measured() -> Value {
    let mut results = quick::results();
    results.cells.retain(|cell| ["x86_64 6.12", "aarch64 6.1"].contains(&cell.target.to_string().as_str()));
    without_runs(results)
}

/// Creates results with run times of programs: of the tracer, and by program.
fn with_run_times() -> Value {
    let mut study = Study { clock: Clock::Instructions, ..study(None, 2, 1) };
    study.design.bpf_stats = true;
    let mut results = derive(&contents(&study, |block, run| match outcome(block, run) {
        Outcome::Measured(mut figures) if run.spec.bpf_stats => {
            let ended = figures.ended.get_or_insert_default();
            ended.statistics =
                vec![ProgramStatistics { program: "on_read".to_owned(), runs: 4000, run_time_ns: 400_000 }];
            ended.events = Some(4000);
            Outcome::Measured(figures)
        }
        other => other,
    }));
    for cell in results.cells.iter_mut().filter(|cell| cell.probe.to_string() == "kprobe") {
        cell.event_time = None;
    }
    without_runs(results)
}

/// Creates results of a tool on two targets: one with findings and figures, and one that refused
/// it.
fn with_tools() -> Value {
    let mut results = measured();
    let figure = |value: &str, reported: u64, really: u64, rounding: u64| {
        json!({ "figure": value, "operations": ["read"], "unit": "calls", "whose": "system", "reported": reported, "really": really,
                "rounding": rounding })
    };
    let mut other = figure("create", 1, 3, 0);
    other["differs"] = "calls of vfs_create".into();
    let long = format!("`r` | {}\nsecond line", "x".repeat(200));
    let tool = json!({
        "findings": [
            { "kind": "counts-too-low", "status": "found", "evidence": [long] },
            { "kind": "idle-cpu", "status": "clear" },
            { "kind": "missed-probes", "status": "not-evaluated", "reason": "not measured" },
        ],
        "figures": [figure("r", 9, 10, 0), figure("k", 1023, 1024, 1), other],
    });
    let refused = json!({ "findings": [{ "kind": "does-not-load", "status": "clear" }], "figures": [] });
    for cell in results["cells"].as_array_mut().unwrap() {
        let result = match cell["attach"]["outcome"].as_str().unwrap() {
            "refused" => refused.clone(),
            _ if cell["probe"] == "kprobe" => tool.clone(),
            _ => continue,
        };
        cell["tool"] = "mine".into();
        cell["tool_result"] = result;
    }
    // The input of the scripts must be valid results.
    serde_json::from_value::<Results>(results.clone()).unwrap();
    results
}

/// Converts results to JSON without runs and blocks, which the tables do not use.
fn without_runs(results: Results) -> Value {
    let mut json = serde_json::to_value(results).unwrap();
    for list in ["/runs", "/plan/blocks"] {
        *json.pointer_mut(list).unwrap() = Value::Array(Vec::new());
    }
    json
}

/// Collects the names of all keys.
fn keys(json: &Value, found: &mut BTreeSet<String>) {
    match json {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            found.insert(key.clone());
            keys(value, found);
        }),
        Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

/// Removes `key` from `json` everywhere.
fn without(json: &mut Value, key: &str) {
    match json {
        Value::Object(map) => {
            map.remove(key);
            map.values_mut().for_each(|value| without(value, key));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| without(value, key)),
        _ => {}
    }
}

#[test]
fn a_key_that_is_not_there_is_an_error() {
    if !is_testable() {
        return;
    }
    // Results need not have these keys.
    let optional = ["differs", "direct", "pooled", "tool", "tool_result"];
    let plain = || vec![measured(), with_run_times()];
    for (script, at_least, all) in
        [("cost-table", 25, plain()), ("exact-table", 15, plain()), ("tool-table", 15, vec![with_tools()])]
    {
        let mut read = BTreeSet::new();
        for results in all {
            let (success, whole) = run(script, &results);
            assert!(success, "{script}: {whole}");
            assert!(!whole.contains("null"), "{script}: {whole}");
            let mut all = BTreeSet::new();
            keys(&results, &mut all);
            // A script reads the keys that it names.
            let source =
                ["results.jq", script].map(|file| fs::read_to_string(Path::new(CI).join(file)).unwrap()).concat();
            all.retain(|key| source.contains(key.as_str()) && !optional.contains(&key.as_str()));
            for key in &all {
                let mut fewer = results.clone();
                without(&mut fewer, key);
                match run(script, &fewer) {
                    (true, shown) => assert_eq!(shown, whole, "{script} prints something else without {key}"),
                    (false, why) => {
                        assert!(why.contains("no key `"), "{script} without {key}: {why}");
                        read.insert(key.clone());
                    }
                }
            }
        }
        assert!(read.len() >= at_least, "{script} reads {read:?}");
    }
}

#[test]
fn results_of_another_version_are_refused() {
    if !is_testable() {
        return;
    }
    let mut results = measured();
    results["version"] = 2.into();
    for script in ["cost-table", "exact-table", "tool-table"] {
        let (success, why) = run(script, &results);
        assert!(!success && why.contains("results of version 2, not 3"), "{script}: {why}");
    }
}

#[test]
fn tools_are_shown_with_their_findings() {
    if !is_testable() {
        return;
    }
    let (success, table) = run("tool-table", &with_tools());
    assert!(success, "{table}");
    let cut = format!("**counts-too-low**: `r` \\| {}…", "x".repeat(153));
    for row in [
        format!(
            "| mine | x86_64 6.12 | yes | 1 of 2 exact; of another definition: `create` (read, calls) 1 beside 3 | {cut} |"
        ),
        "| mine | aarch64 6.1 | no | none | nothing |".to_owned(),
    ] {
        assert!(table.contains(&row), "{row}:\n{table}");
    }
}

#[test]
fn costs_are_shown_directly_and_as_a_whole_and_by_role() {
    if !is_testable() {
        return;
    }
    let (success, tables) = run("cost-table", &measured());
    assert!(success, "{tables}");
    for row in [
        "| x86_64 6.12 | fexit | 352 | 366.6 [239, 494.1] ~ | 344.5 | 347 [337.1, 357] ~ | 0..0 | - |",
        "| aarch64 6.1 | fexit | refused: prog 'open_exit': failed to attach: -ENOTSUPP | | | | | |",
        "| x86_64 6.12 | fexit | write | 352 | 126.6 | 40.5 | 22.5 | 162.3 | 14.5 |",
    ] {
        assert!(tables.contains(row), "{row}:\n{tables}");
    }
    let mut foreign = measured();
    let functions = foreign.pointer_mut("/cells/1/metrics/0/direct/value/functions").unwrap();
    functions[0]["role"] = "another".into();
    let (success, why) = run("cost-table", &foreign);
    assert!(!success && why.contains("a role without a column"), "{why}");
    let (success, tables) = run("cost-table", &with_run_times());
    assert!(success && tables.contains(" | on_read 100 |") && tables.contains(" | 100 |"), "{tables}");
}

/// Returns the contents of a JSON file.
fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Returns what a successful `jq` prints.
fn printed(jq: &mut Command) -> String {
    let output = jq.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the contents of atlas.json with `results`, added to the atlas `old`.
fn atlas_of(directory: &Path, old: Option<&Value>, results: &[Value]) -> Value {
    let kept = directory.join("old.json");
    fs::write(&kept, old.map(Value::to_string).unwrap_or_default()).unwrap();
    let mut jq = Command::new("jq");
    jq.args(["--slurp", "--slurpfile", "old"])
        .arg(kept)
        .arg("-L")
        .arg(CI)
        .arg("-f")
        .arg(Path::new(CI).join("atlas.jq"));
    for (index, results) in results.iter().enumerate() {
        let path = directory.join(format!("results-{index}.json"));
        fs::write(&path, results.to_string()).unwrap();
        jq.arg(path);
    }
    serde_json::from_str(&printed(&mut jq)).unwrap()
}

#[test]
fn the_atlas_counts_the_last_checks_that_gave_the_same() {
    if !is_testable() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // The results of a check that began at `started` and saw a tool with `programs` programs.
    let check = |started: u64, programs: usize| {
        let mut check = serde_json::to_value(made_up::with_tool(&[], Some(Arch::Aarch64))).unwrap();
        check["started_unix_ms"] = started.into();
        for cell in check["cells"].as_array_mut().unwrap() {
            if let Some(listed) = cell.pointer_mut("/tool_result/loaded/programs").and_then(Value::as_array_mut) {
                *listed = vec![listed[0].clone(); programs];
            }
        }
        check
    };
    let x86_64 = |atlas: &Value| {
        let cells = atlas["tools"][0]["cells"].as_array().unwrap();
        let cell = cells.iter().find(|cell| cell["target"] == "x86_64 6.1").unwrap();
        json!([cell["programs"], cell["runs"], cell["started_unix_ms"]])
    };
    let add = |old: Option<&Value>, results: &[Value]| atlas_of(directory.path(), old, results);
    let first = add(None, &[check(10, 1)]);
    assert_eq!(x86_64(&first), json!([1, 1, 10]));
    let second = add(Some(&first), &[check(20, 1)]);
    assert_eq!(x86_64(&second), json!([1, 2, 20]));
    assert_eq!(add(Some(&second), &[check(20, 1)]), second, "a check counts once");
    assert_eq!(x86_64(&add(Some(&second), &[check(30, 1)])), json!([1, 3, 30]));
    assert_eq!(x86_64(&add(Some(&second), &[check(30, 2)])), json!([2, 1, 30]), "another result");
    assert_eq!(x86_64(&add(Some(&first), &[check(5, 2)]))[0], 1, "the latest check counts");
}

#[test]
fn the_atlas_tells_what_loads_what_is_refused_and_what_is_found() {
    if !is_testable() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let check = serde_json::to_value(made_up::with_tool(&[], Some(Arch::Aarch64))).unwrap();
    // The same cells, as if a run had compared one of two figures.
    let mut run = check.clone();
    run["plan"]["study"]["name"] = json!("atlas");
    for cell in run["cells"].as_array_mut().unwrap().iter_mut().filter(|cell| cell["tool_result"].is_object()) {
        cell["tool_result"]["figures"] = json!([{ "figure": "rx", "unit": "bytes-returned" }]);
        cell["tool_result"]["not_compared"] = json!([{ "index": 1, "figure": "`tx` (send, bytes-requested)" }]);
    }
    let atlas = atlas_of(directory.path(), None, &[check, run]);
    assert_eq!(atlas["targets"], json!(["x86_64 6.1", "aarch64 6.1", "riscv64 6.12"]));
    let cells = atlas["tools"][0]["cells"].as_array().unwrap();
    let of = |target: &str| cells.iter().find(|cell| cell["target"] == target).unwrap();
    assert_eq!((&of("x86_64 6.1")["state"], &of("x86_64 6.1")["programs"]), (&json!("loads"), &json!(1)));
    assert_eq!(of("aarch64 6.1")["state"], "does not attach");
    assert_eq!(
        of("aarch64 6.1")["reason"],
        "on_read: cannot attach on_read to vfs_read: Unknown error 524 (error 524)"
    );
    assert_eq!(of("riscv64 6.12")["findings"][0]["kind"], "left-behind");
    assert_eq!(of("riscv64 6.12")["run"]["counts"], "compared in part");
    let open = |target: &str, kind: &str| &of(target)["not_looked_for"][kind];
    assert_eq!(open("x86_64 6.1", "left-behind"), "the kernel does not list links");
    assert_eq!(open("riscv64 6.12", "left-behind"), &Value::Null, "found");
    assert_eq!(open("x86_64 6.1", "counts-too-low"), &Value::Null, "needs a workload");
}

#[test]
fn two_versions_of_a_package_differ_by_what_their_cells_differ_by() {
    if !is_testable() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let cell = |state: &str, verified: u64| {
        json!({ "target": "x86_64 6.12", "state": state, "reason": "no `x`", "programs": 2,
            "verified_instructions": verified, "jited_bytes": 90, "findings": [] })
    };
    let atlas = |version: &str, cells: [(&str, &str, u64); 4]| {
        let tools = cells.map(|(name, state, verified)| json!({ "name": name, "cells": [cell(state, verified)] }));
        json!({ "packages": { "libbpf-tools": version }, "tools": tools })
    };
    let (alike, same) = ("does not load", 7);
    let base = atlas("1", [("a", "loads", 5), ("b", alike, 5), ("c", "loads", same), ("d", "not measured", 5)]);
    let new = atlas("2", [("a", "loads", 9), ("b", "loads", 5), ("c", "loads", same), ("e", "loads", 5)]);
    let mut jq = Command::new("jq");
    jq.args(["-rn", "-f"]).arg(Path::new(CI).join("versions.jq"));
    for (name, value) in [("base", base), ("new", new)] {
        let path = directory.path().join(name);
        fs::write(&path, value.to_string()).unwrap();
        jq.arg("--slurpfile").arg(name).arg(path);
    }
    let page = printed(&mut jq);
    let sentences: Vec<&str> = page.lines().filter(|line| line.starts_with("- ")).collect();
    assert_eq!(
        sentences,
        ["- `b` does not load in 1 (no 'x'), and loads in 2.", "- `a`: 5 → 9 verified instructions."]
    );
    assert!(page.contains("checked the 3 programs") && page.contains("\n1 other tool has"), "{page}");
}

/// The figures are few enough to check each sentence of the snapshot by eye.
#[test]
fn the_sentences_of_an_atlas_have_its_counts() {
    if !is_testable() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let cell = |target: &str, state: &str, costs: Value| {
        let loads = state == "loads";
        json!({ "target": target, "state": state, "reason": (!loads).then_some("a.h:1:2: error: no `x`"),
            "programs": loads.then_some(2), "verified_instructions": loads.then_some(90), "jited_bytes": loads.then_some(50),
            "ready_ms": loads.then_some(7), "findings": [], "run": { "costs": costs, "mostly": { "write": "f" }, "counts": null } })
    };
    let of = |[x, newer, a]: [&str; 3], costs: [Value; 2]| {
        let [on_x, on_a] = costs;
        json!([cell("x86_64 6.1", x, Value::Null), cell("x86_64 6.12", newer, on_x), cell("aarch64 6.12", a, on_a)])
    };
    let tool = |name: &str, cells: Value| json!({ "name": name, "package": "p", "cells": cells });
    let (loads, not, open) = ("loads", "does not load", "not measured");
    let free = || [json!({ "write": 0.5, "read": 0.5 }), Value::Null];
    let mut tools = vec![
        tool("a", of([loads; 3], [json!({ "write": 300.4, "read": 2 }), json!({ "write": 100 })])),
        tool("b", of([not, loads, not], [json!({ "write": 50, "read": "not measured" }), Value::Null])),
        tool("c", of([open, loads, open], free())),
    ];
    tools.extend((1..=9).map(|n| tool(&format!("t{n}"), of([loads, not, not], free()))));
    let atlas = json!({ "packages": { "p": "1.0" }, "kernels": { "x86_64 6.1": "k1", "x86_64 6.12": "k2", "aarch64 6.12": "k3" }, "tools": tools,
        "targets": ["x86_64 6.1", "x86_64 6.12", "aarch64 6.12"] });
    let path = directory.path().join("atlas.json");
    fs::write(&path, atlas.to_string()).unwrap();
    let script = Path::new(CI).join("atlas-readme.jq");
    let mut jq = Command::new("jq");
    jq.args(["-r", "--arg", "fingerprints", "", "-f"]).arg(script).arg(path);
    insta::assert_snapshot!(printed(&mut jq));
}

/// Every sentence of the pages follows from atlas.json.
#[test]
fn the_pages_of_the_atlas_are_those_of_its_data() {
    if !is_testable() {
        return;
    }
    let recorded = Path::new(CI).join("../../results/atlas");
    let directory = tempfile::tempdir().unwrap();
    fs::copy(recorded.join("atlas.json"), directory.path().join("atlas.json")).unwrap();
    let status = Command::new(Path::new(CI).join("atlas-pages")).arg(directory.path()).status().unwrap();
    assert!(status.success());
    for page in ["README.md", "atlas.csv", "index.html"] {
        let text = |directory: &Path| fs::read_to_string(directory.join(page)).unwrap();
        assert!(text(directory.path()) == text(&recorded), "{page}: write it with `ci/records/atlas-pages`");
    }
    let tools = json_of(&recorded.join("atlas.json"))["tools"].as_array().unwrap().clone();
    assert_eq!(fs::read_dir(recorded.join("tools")).unwrap().count(), tools.len());
    for tool in tools {
        assert_eq!(json_of(&recorded.join(format!("tools/{}.json", tool["name"].as_str().unwrap()))), tool);
    }
}

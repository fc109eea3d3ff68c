// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures by process and thread in a guest: each process of a workload has its own truth, for any
//! workload, and whatever names a tool gives to processes. The same holds for each variant of an
//! operation, and for failed calls.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use crate::common::{bpfassay, faults, guests_wanted, printed, results, study, without_plugins, wrong_tools};

/// Builds the right tool `by-id` as the wrong one `name`, compiled with `option`; returns the name.
fn wrong(directory: &Path, name: &'static str, option: &str) -> &'static str {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/right-tools/by-id.bpf.c");
    wrong_tools::compile(&wrong_tools::clang(), &source, &[option], &directory.join(format!("{name}.bpf.o")));
    let text = fs::read_to_string(directory.join("by-id.toml")).unwrap();
    let text = text.replace("\"by-id\"", &format!("\"{name}\"")).replace("by-id.", &format!("{name}."));
    fs::write(directory.join(format!("{name}.toml")), text).unwrap();
    name
}

/// Tools of tests/variants: a name, how it is compiled, the unit of its figures, and the finding of
/// a wrong one with the ends of its evidence. A tool has a unit if it counts only the variants that
/// are named like their operations.
const VARIANTS: [Variants; 5] = [
    ("all", &[], None, None),
    ("plain", &["-DPLAIN"], Some("calls"), None),
    ("successes", &["-DPLAIN", "-DSUCCESSES"], Some("successes"), None),
    (
        "lacks-variants",
        &["-DPLAIN"],
        None,
        Some(("operations-not-seen", ["the 8 calls of fdatasync are missing", "opens by execve are missing"])),
    ),
    (
        "lacks-failed",
        &["-DSUCCESSES"],
        None,
        Some(("counts-too-low", ["the 5 calls that failed are missing", "calls that failed are missing"])),
    ),
];

type Variants =
    (&'static str, &'static [&'static str], Option<&'static str>, Option<(&'static str, [&'static str; 2])>);

/// Builds the tools, and writes their files.
fn build_variants(directory: &Path) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/variants");
    let text = fs::read_to_string(sources.join("calls.toml")).unwrap();
    for (name, options, unit, _) in VARIANTS {
        let object = format!("{name}.bpf.o");
        wrong_tools::compile(&wrong_tools::clang(), &sources.join("calls.bpf.c"), options, &directory.join(&object));
        let mut text = text.replace("name = \"calls\"", &format!("name = \"{name}\"")).replace("calls.bpf.o", &object);
        if let Some(unit) = unit {
            text = text.replace("unit = \"calls\"", &format!("unit = \"{unit}\""));
            for operation in ["fsync", "open"] {
                let own = format!("operations = \"{operation}\"");
                text = text.replace(&own, &format!("{own}, variants = \"{operation}\""));
            }
        }
        fs::write(directory.join(format!("{name}.toml")), text).unwrap();
    }
}

/// Checks that nothing is found in right tools, and that wrong ones have exactly the expected
/// finding.
fn check_variants(cell: &dyn Fn(&str) -> Value) {
    for (name, _, _, wrong) in VARIANTS {
        let cell = cell(name);
        let found = faults(&cell);
        let not_compared = &cell["tool_result"]["not_compared"];
        assert!(not_compared.as_array().is_none_or(Vec::is_empty), "{name}: {not_compared:#}");
        let Some((kind, ends)) = wrong else {
            assert!(found.is_empty(), "{name}: {found:#?}");
            let figures = cell["tool_result"]["figures"].as_array().unwrap();
            let most = |operation: &str| {
                let of = figures.iter().filter(|figure| figure["operations"][0] == operation);
                of.map(|figure| figure["reported"].as_u64().unwrap()).max().unwrap()
            };
            assert!(most("fsync") >= 29 && most("open") >= 20, "{name}: {figures:#?}");
            continue;
        };
        let [found] = found.as_slice() else { panic!("{name}: {found:#?}") };
        let lines: Vec<&str> =
            found["evidence"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
        assert_eq!((found["kind"].as_str().unwrap(), lines.len()), (kind, 2), "{name}: {found:#}");
        for (line, end) in lines.iter().zip(ends) {
            assert!(line.ends_with(end) && !line.contains("as much as"), "{name}: {line}");
        }
    }
}

/// Returns the calls of each process by the tool of `cell`: its name, the reported number and the
/// real one.
fn calls(cell: &Value) -> Vec<(&str, u64, u64)> {
    let figures = cell["tool_result"]["figures"].as_array().unwrap().iter();
    let of_calls = figures.filter(|figure| figure["figure"] == "calls" && figure["operations"][0] == "read");
    let number = |figure: &Value, key: &str| figure[key].as_u64().unwrap();
    of_calls
        .map(|figure| (figure["subject"].as_str().unwrap(), number(figure, "reported"), number(figure, "really")))
        .collect()
}

#[test]
fn processes_are_compared_by_ids_and_names() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    wrong_tools::build("right-tools", directory.path());
    build_variants(directory.path());
    let programs = tempfile::tempdir().unwrap();
    let mut command = bpfassay(directory.path());
    command.args(["run", "--yes", "--output", "out"]).arg(study("processes.toml"));
    let lossy = wrong(directory.path(), "lossy", "-DLOSES");
    let signed = wrong(directory.path(), "signed", "-DADDS_ERRORS");
    let of_processes = ["by-both-ids", "by-id", "by-process", lossy, signed];
    for tool in of_processes.into_iter().chain(VARIANTS.map(|(name, ..)| name)) {
        command.arg("--tool").arg(format!("{tool}.toml"));
    }
    let output = command.env("PATH", without_plugins(programs.path())).output().unwrap();
    println!("{}", printed(&output));
    let results = results(&directory.path().join("out"));
    let cell = |case: &str, tool: &str| {
        let mut cells = results["cells"].as_array().unwrap().iter();
        cells.find(|cell| cell["case"] == case && cell["tool"] == tool).unwrap()
    };
    for tool in ["by-both-ids", "by-id", "by-process"] {
        for case in ["ranks", "forks"] {
            let cell = cell(case, tool);
            assert!(faults(cell).is_empty(), "{case} {tool}: {:#?}", faults(cell));
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
        let found = faults(cell(case, "lossy"));
        let kinds: Vec<&str> = found.iter().map(|finding| finding["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["counts-too-low"], "{case}: {found:#?}");
    }
    assert_eq!(faults(cell("ranks", "signed")), [] as [&Value; 0]);
    let found_of_signed = faults(cell("forks", "signed"));
    let [negative] = found_of_signed.as_slice() else { panic!("{found_of_signed:#?}") };
    let evidence = negative["evidence"].to_string();
    assert!(evidence.contains("as much as 22 failed calls that returned -21"), "{evidence}");
    check_variants(&|tool| cell("forks", tool).clone());
}

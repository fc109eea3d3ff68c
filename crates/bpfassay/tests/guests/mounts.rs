// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mounts that are easily confused, in guests. The bundled tracer is exact on each. A tool that
//! names mounts by the last component of their paths merges two of them. Tools that distinguish
//! them otherwise have no findings. Other tests cover tools that report histograms, in tables and
//! on one of two pages.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use serde_json::Value;

use crate::common::{bpfassay, faults, guests_wanted, printed, results, study, without_plugins, wrong_tools};

/// Bytes on the first mount (`DEFAULT_SIZE` of the workload).
const SIZE: u64 = 20 << 10;

/// Runs the study with these tools, and `more` at its end; returns the results and the output.
fn run(directory: &Path, more: &str, tools: &[&str]) -> (Value, String) {
    fs::write(directory.join("mounts.toml"), fs::read_to_string(study("mounts.toml")).unwrap() + more).unwrap();
    let programs = tempfile::tempdir().unwrap();
    let mut command = bpfassay(directory);
    command.args(["run", "mounts.toml", "--yes", "--output", "out"]).env("PATH", without_plugins(programs.path()));
    for tool in tools {
        command.arg("--tool").arg(format!("{tool}.toml"));
    }
    let output = command.output().unwrap();
    (results(&directory.join("out")), printed(&output))
}

/// Returns the mounts in the order of the study, with the bytes moved on them, and the traced bytes
/// and calls beyond those. Each mount occurs twice.
fn by_mount(results: &Value, probe: &str) -> Vec<(String, u64, i64, i64)> {
    let runs = results["runs"].as_array().unwrap();
    let run = runs.iter().find(|run| run["record"]["run"].as_str().unwrap().ends_with(&format!("_{probe}"))).unwrap();
    let bytes = run["derived"]["bytes"].as_array().unwrap().iter();
    bytes
        .map(|figure| {
            let mount = figure["span"]["phase"].as_str().unwrap().to_owned();
            let error = |name: &str| figure[name]["value"].as_i64().unwrap_or_else(|| panic!("{figure}"));
            (mount, figure["workload"]["value"].as_u64().unwrap(), error("error"), error("call_error"))
        })
        .collect()
}

/// Returns the kinds of fault in `tool`, with their evidence.
fn found(results: &Value, tool: &str) -> Vec<(String, String)> {
    let cell = results["cells"].as_array().unwrap().iter().find(|cell| cell["tool"] == tool).unwrap();
    assert_eq!(cell["attach"]["outcome"], "attached", "{cell}");
    let found = faults(cell).into_iter();
    found.map(|fault| (fault["kind"].as_str().unwrap().to_owned(), fault["evidence"].to_string())).collect()
}

fn directory_with_tools() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    wrong_tools::build("wrong-tools", directory.path());
    wrong_tools::build("right-tools", directory.path());
    wrong_tools::build("more-right-tools", directory.path());
    directory
}

#[test]
fn the_tracer_distinguishes_mounts_with_one_last_component_and_a_tool_that_does_not_is_found() {
    if !guests_wanted() {
        return;
    }
    let directory = directory_with_tools();
    let tools = [&["last-component", "by-mount", "by-path"][..], &OF_HISTOGRAMS.map(|(tool, _)| tool)].concat();
    let (results, text) = run(directory.path(), "", &tools);
    let long = "/mnt/a-directory-with-a-long-name/and-another-one-below-it/and-the-mount";
    let mounts = ["file-system", "/mnt/a/data", "/mnt/b/data", "/mnt/again", long];
    let expected: Vec<_> = mounts
        .iter()
        .zip(1..)
        .flat_map(|(mount, times)| [(); 2].map(|()| ((*mount).to_owned(), times * SIZE, 0, 0)))
        .collect();
    for probe in ["fexit", "kretprobe"] {
        assert_eq!(by_mount(&results, probe), expected, "{probe}: {text}");
    }
    // Two of the tmpfs mounts are called `data`, and their sum equals the figure of another mount
    // by chance. The tool's other names are unknown, and each is attributed to its mount.
    let merged = found(&results, "last-component");
    let kinds: Vec<&str> = merged.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["mounts-merged", "subject-unknown"], "{merged:?}\n{text}");
    assert_eq!(
        merged[0].1,
        "[\"`bytes` of mount data: 102400, which is 0 of its own and 102400 of /mnt/a/data, /mnt/b/data\"]"
    );
    let unknown = &merged[1].1;
    for (name, path) in [("nfs", "/mnt/nfs"), ("again", "/mnt/again"), ("and-the-mount", long)] {
        assert!(unknown.contains(&format!("of mount {name}: ")), "{unknown}");
        assert!(unknown.contains(&format!("; the same as really of mount {path}\"")), "{unknown}");
    }
    assert!(!unknown.contains("of mount data") && !unknown.contains("no mount did anything"), "{unknown}");
    for tool in ["by-mount", "by-path"] {
        assert_eq!(found(&results, tool), [], "{tool}: {text}");
    }
    for (tool, figures) in OF_HISTOGRAMS {
        assert_eq!(found(&results, tool), [], "{tool}: {text}");
        shows(&results, tool, figures);
    }
}

/// Tools of tests/more-right-tools that report histograms of the workload's reads, with their
/// figures. The flag tells that the figure is the number of a histogram's values.
const OF_HISTOGRAMS: [(&str, &[(&str, bool)]); 3] = [
    ("durations-log2", &[("usecs.count", true)]),
    ("durations-linear", &[("kbytes.count", true)]),
    ("durations-pages", &[("durations: read_seconds_count", true), ("sizes: read_bytes_total", false)]),
];

/// Checks that these figures of `tool` are exact, and that reports describe the values of
/// histograms.
fn shows(results: &Value, tool: &str, expected: &[(&str, bool)]) {
    let cell = results["cells"].as_array().unwrap().iter().find(|cell| cell["tool"] == tool).unwrap();
    let figures = cell["tool_result"]["figures"].as_array().unwrap().iter();
    // Figures by process are compared for each process; this test checks the workload's.
    let is_of_workload = |figure: &&Value| figure["whose"] != "process" || figure["subject"] == "ior";
    let figures: Vec<&Value> = figures.filter(is_of_workload).collect();
    let names: Vec<_> = figures.iter().map(|figure| figure["figure"].as_str().unwrap()).collect();
    assert_eq!(names, expected.iter().map(|(name, _)| *name).collect::<Vec<_>>(), "{tool}");
    for (figure, (_, is_histogram)) in figures.into_iter().zip(expected) {
        assert!(figure["reported"].as_u64() > Some(0) && figure["reported"] == figure["really"], "{tool}: {figure}");
        let values = &figure["values"];
        let bound = |name: &str| values[name].as_str().map(|text| text.parse::<f64>().unwrap());
        let bounds = ["half_up_to", "most_up_to", "all_up_to"].map(bound);
        assert_eq!(bounds.map(|bound| bound.is_some()), [*is_histogram; 3], "{tool}: {figure}");
        assert!(bounds.is_sorted(), "{tool}: {figure}");
        // The workload moves 16 KiB in most calls, and no more in any.
        if tool == "durations-linear" {
            assert_eq!(bounds, [Some(16.0); 3], "{figure}");
        }
    }
}

#[test]
fn mounts_of_the_workload_s_own_namespace_have_what_was_moved_on_them() {
    if !guests_wanted() {
        return;
    }
    let directory = directory_with_tools();
    let private = "\n[[mounts]]\npath = \"/mnt/own\"\ntype = \"tmpfs\"\nprivate = true\n";
    let (results, text) = run(directory.path(), private, &["by-mount", "by-cgroup"]);
    let figures = by_mount(&results, "fexit");
    assert_eq!(figures.last(), Some(&("/mnt/own".to_owned(), 6 * SIZE, 0, 0)), "{text}");
    assert!(figures.iter().all(|(_, _, bytes, calls)| (*bytes, *calls) == (0, 0)), "{figures:?}");
    let runs = results["runs"].as_array().unwrap();
    let namespace = runs[0]["record"]["outcome"]["namespace"].as_array().unwrap();
    assert!(namespace.iter().any(|mount| mount["path"] == "/mnt/own"), "{namespace:?}");
    // The mount is not in the guest's own namespace, and does not outlast its run.
    assert!(runs.iter().all(|run| run["record"]["outcome"]["type"] == "measured"), "{text}");
    for tool in ["by-mount", "by-cgroup"] {
        assert_eq!(found(&results, tool), [], "{tool}: {text}");
    }
}

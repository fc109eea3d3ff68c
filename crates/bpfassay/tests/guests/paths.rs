// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of probes for every path and operation in real guests, separated from those of a
//! neighbour.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::{guests_wanted, run, run_with};

#[test]
fn a_neighbour_is_never_counted_for_the_workload() {
    if !guests_wanted() {
        return;
    }
    let (_directory, results) = run("neighbour.toml", 0);
    let cells = results["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 9);
    for cell in cells.iter().filter(|cell| cell["probe"] != "none") {
        for row in cell["accuracy"].as_array().unwrap() {
            for figure in ["byte_error", "call_error"] {
                let errors = &row[figure]["value"];
                assert!(errors["intervals"].as_u64().is_some_and(|n| n > 0), "{cell:#}");
                assert_eq!(errors["exact"], errors["intervals"], "{figure} of {cell:#}");
                assert_eq!(errors["not_measured"], 0, "{figure} of {cell:#}");
            }
        }
    }
    // The neighbour really ran: the tracer counted calls of another cgroup on the same device. It
    // need not run in every phase, because the shortest last only a few milliseconds.
    for one in results["runs"].as_array().unwrap().iter().filter(|one| one["record"]["outcome"]["probe"] != "none") {
        let figures = &one["record"]["outcome"];
        let others = |edge: &str| -> u64 {
            let rows = figures["whole"][edge]["tracer"]["rows"].as_array().unwrap();
            let foreign =
                |row: &&Value| row["cgroup"] != figures["cgroup"] && row["device"] == figures["mount"]["device"];
            rows.iter().filter(foreign).map(|row| row["calls"].as_u64().unwrap()).sum()
        };
        assert!(others("after") > others("before"), "{}: {:#}", one["record"]["run"], figures["whole"]);
    }
}

/// Operations on names, including failing ones, and fsync: every probe of the study counts them
/// exactly, on every target.
const NAMES: [&str; 15] = [
    "open",
    "failed-open",
    "create",
    "failed-create",
    "mknod",
    "mkdir",
    "failed-mkdir",
    "rename",
    "failed-rename",
    "unlink",
    "failed-unlink",
    "rmdir",
    "failed-rmdir",
    "fsync",
    "failed-fsync",
];

/// The targets on which `complete` counts every byte, call and error of every path.
const COMPLETE: [&str; 2] = ["x86_64 6.12", "x86_64 7.2"];

/// Returns what a cell's runs saw of each path.
fn coverage<'a>(results: &'a Value, cell: &Value) -> Vec<&'a Value> {
    let runs = results["runs"].as_array().unwrap().iter().filter(|run| run["record"]["cell"] == cell["cell"]);
    runs.flat_map(|run| run["derived"]["coverage"].as_array().unwrap()).collect()
}

/// Returns the targets and probe configurations that attached, and how many functions were hooked
/// under the names of compiler variants. Checks the required counts.
fn counted(results: &Value) -> (BTreeSet<(String, &str)>, u32) {
    let mut attached = BTreeSet::new();
    let mut constprop = 0;
    for cell in results["cells"].as_array().unwrap() {
        let (probe, target) = (cell["probe"].as_str().unwrap(), &cell["target"]);
        let target = format!("{} {}", target["arch"].as_str().unwrap(), target["kernel"].as_str().unwrap());
        if probe == "none" {
            continue;
        }
        if cell["attach"]["outcome"] != "attached" {
            assert_eq!(cell["attach"]["expected"], true, "{target} {probe}: {:#}", cell["attach"]);
            continue;
        }
        attached.insert((target.clone(), probe));
        let rows = coverage(results, cell);
        // On a preemptible kernel, a task that is preempted inside a program keeps other tasks on
        // that CPU from running the program. Copies of the program compensate for that, if there
        // are some.
        let skips = cell["findings"].as_array().unwrap().iter().any(|found| {
            let (pitfall, detail) = (&found["finding"]["pitfall"], found["finding"]["detail"].as_str().unwrap());
            *pitfall == "missed-probes" || *pitfall == "recursion-misses" && !detail.ends_with("none is lost")
        });
        assert!(rows.len() > 50, "{target} {probe}");
        if (target.as_str(), probe) == ("riscv64 7.2", "complete") {
            // GCC has only constprop variants of these functions in that kernel.
            for function in ["aio_read", "aio_write"] {
                let is_found = cell["findings"].as_array().unwrap().iter().any(|found| {
                    let finding = &found["finding"];
                    (&finding["pitfall"], &finding["subject"]) == (&"symbol-renamed".into(), &function.into())
                        && finding["detail"].as_str().unwrap().contains(".constprop.")
                });
                assert!(is_found, "{function}: {:#}", cell["findings"]);
                constprop += 1;
            }
        }
        for row in rows {
            let path = row["path"].as_str().unwrap();
            // This file system or kernel lacks the path.
            if !row["refused"].is_null() {
                assert!(!NAMES.contains(&path), "{target} {probe}: {row:#}");
                continue;
            }
            if NAMES.contains(&path) || probe == "complete" && COMPLETE.contains(&target.as_str()) {
                let difference = &row["difference"]["value"];
                for figure in ["bytes", "calls", "errors"] {
                    let difference = difference[figure].as_i64().unwrap_or(0);
                    // Counts are never too high. They are too low only if the kernel reports
                    // skipped programs.
                    assert!(
                        difference == 0 || difference < 0 && skips,
                        "{target} {probe} {path} {figure}: {row:#} {:#}",
                        cell["findings"]
                    );
                }
            }
        }
    }
    (attached, constprop)
}

#[test]
fn every_path_is_counted_exactly_where_the_kernel_lets_one_see_it() {
    if !guests_wanted() {
        return;
    }
    let probes = "complete,kretprobe,tracepoint,fexit@aya";
    let (_directory, results) = run_with("io-paths.toml", &["--kernel", "7.2", "--probe", probes], 0);
    let (attached, constprop) = counted(&results);
    let targets: BTreeSet<&str> = attached.iter().map(|(target, _)| target.as_str()).collect();
    assert_eq!(targets.len(), 3, "{attached:?}");
    assert_eq!(constprop, 2, "`complete` attached on riscv64 7.2");
}

/// This covers a kernel that does not preempt itself, with the programs in the other language.
#[test]
fn every_path_is_counted_exactly_on_an_older_kernel() {
    if !guests_wanted() {
        return;
    }
    let arguments = ["--arch", "x86_64", "--kernel", "6.12", "--probe", "complete,fexit,kretprobe@aya"];
    let (_directory, results) = run_with("io-paths.toml", &arguments, 0);
    let (attached, _) = counted(&results);
    let probes: Vec<&str> = attached.iter().map(|(_, probe)| *probe).collect();
    assert_eq!(probes, ["complete", "fexit", "kretprobe@aya"], "{attached:?}");
}

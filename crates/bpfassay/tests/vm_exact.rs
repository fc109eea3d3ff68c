//! Every probe configuration that sees what calls return counts every byte and every call.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and says aloud what it skips")]

mod common;

use std::fs;

use common::{bpfassay, guests_wanted, said, study};
use serde_json::Value;

/// Runs the study `name` of vm-tests/, of its workloads only those that are named, with further arguments; gives the results.
fn run(name: &str, workloads: &[&str], arguments: &[&str]) -> Value {
    let text = fs::read_to_string(study(name)).unwrap();
    let mut sections = text.split("\n[[");
    let mut narrowed = sections.next().unwrap().to_owned();
    for section in sections {
        let (tables, rest) = section.split_once("\n[").map_or((section, ""), |(tables, rest)| (tables, rest));
        let wanted =
            !tables.starts_with("workloads") || workloads.iter().any(|name| tables.contains(&format!("{name:?}")));
        if wanted {
            narrowed.push_str("\n[[");
            narrowed.push_str(tables);
        }
        if !rest.is_empty() {
            narrowed.push_str("\n[");
            narrowed.push_str(rest);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(name), narrowed).unwrap();
    let output =
        bpfassay(directory.path()).args(["run", name, "--yes", "--output", "out"]).args(arguments).output().unwrap();
    let said = said(&output);
    println!("{said}");
    assert!(output.status.success(), "{said}");
    common::results(&directory.path().join("out"))
}

/// Every cell that is no baseline, after making sure that it is exact or was refused as expected; and how many of them
/// attached.
fn assert_exact(results: &Value) -> usize {
    let mut wrong = Vec::new();
    let mut attached = 0;
    for cell in results["cells"].as_array().unwrap() {
        let name = cell["cell"].as_str().unwrap();
        match cell["attach"]["outcome"].as_str().unwrap() {
            "baseline" => continue,
            "attached" => attached += 1,
            "refused" if cell["attach"]["expected"] == true => continue,
            _ => {
                wrong.push(format!("{name}: {}", cell["attach"]));
                continue;
            }
        }
        if cell["runs"]["measured"] != cell["runs"]["planned"] {
            wrong.push(format!("{name}: {}", cell["runs"]));
        }
        let accesses = cell["accesses"].as_array().unwrap();
        assert_eq!(accesses.len(), 2, "written and read: {cell:#}");
        for access in accesses {
            for error in ["byte_error", "call_error"] {
                let seen = &access[error]["value"];
                let is_exact = seen["min"] == 0 && seen["max"] == 0 && seen["not_measured"] == 0;
                if !is_exact || seen["intervals"].as_u64().unwrap() == 0 {
                    wrong.push(format!("{name}, {}: {error} {}", access["access"], access[error]));
                }
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    attached
}

#[test]
fn every_configuration_on_the_oldest_kernel_and_on_one_that_preempts_itself() {
    if guests_wanted() {
        let targets = ["--arch", "x86_64", "--kernel", "5.10", "--kernel", "7.2"];
        let attached = assert_exact(&run("exact.toml", &["shared"], &targets));
        assert!(attached >= 65, "only {attached}");
    }
}

#[test]
fn every_target() {
    if guests_wanted() {
        let probes = [
            "fexit",
            "kretprobe",
            "kprobe-multi",
            "tracepoint",
            "raw-tracepoint",
            "uprobe",
            "task-io",
            "fexit@aya",
            "kretprobe@aya",
            "tracepoint@aya",
            "raw-tracepoint@aya",
        ];
        let mut arguments = Vec::new();
        for probe in probes {
            arguments.extend(["--probe", probe]);
        }
        let attached = assert_exact(&run("exact.toml", &["own-files"], &arguments));
        assert!(attached >= 80, "only {attached}");
    }
}

#[test]
fn the_first_touch_of_a_key_by_four_cpus() {
    if guests_wanted() {
        let results = run("first-touch.toml", &["touch"], &[]);
        for boot in results["boots"].as_array().unwrap() {
            println!("{}", boot["guest"]);
        }
        let attached = assert_exact(&results);
        assert!(attached >= 50, "only {attached}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probe configurations that see what calls return count every byte and every call. The studies are
//! a part of those in results/exact.md.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;

use crate::common::{guests_wanted, run_with};

/// Runs the study `name` of vm-tests/, narrowed to x86_64, `kernels` and `probes`; returns the
/// results.
fn run(name: &str, kernels: &[&str], probes: &[&str]) -> Value {
    let mut arguments = vec!["--arch", "x86_64", "--probe", "none"];
    arguments.extend(kernels.iter().flat_map(|kernel| ["--kernel", kernel]));
    arguments.extend(probes.iter().flat_map(|probe| ["--probe", probe]));
    run_with(name, &arguments, 0).1
}

/// Checks that every cell except for baselines attached and is exact; returns their number.
fn assert_exact(results: &Value) -> usize {
    let mut wrong = Vec::new();
    let mut attached = 0;
    for cell in results["cells"].as_array().unwrap() {
        let name = cell["cell"].as_str().unwrap();
        match cell["attach"]["outcome"].as_str().unwrap() {
            "baseline" => continue,
            "attached" => attached += 1,
            _ => wrong.push(format!("{name}: {}", cell["attach"])),
        }
        assert_eq!(cell["runs"]["measured"], cell["runs"]["planned"], "{name}");
        let rows = cell["accuracy"].as_array().unwrap();
        assert_eq!(rows.len(), 2, "written and read: {cell:#}");
        for row in rows {
            for error in ["byte_error", "call_error"] {
                let seen = &row[error]["value"];
                let is_exact = seen["min"] == 0 && seen["max"] == 0 && seen["not_measured"] == 0;
                if !is_exact || seen["intervals"].as_u64().unwrap() == 0 {
                    wrong.push(format!("{name}, {}: {error} {}", row["metric"], row[error]));
                }
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    attached
}

/// Covers ways of attaching whose programs can be preempted, each map layout and both loaders, on a
/// kernel that preempts itself.
#[test]
fn four_ranks_and_a_neighbour_are_distinguished_and_counted_exactly() {
    if guests_wanted() {
        let probes =
            ["fexit+lru-shared", "raw-tracepoint+hash-shared", "uprobe+ringbuf", "tracepoint", "tracepoint@aya"];
        // There are three workloads: one rank, a shared file, a file per process.
        let attached = assert_exact(&run("exact.toml", &["7.2"], &probes));
        assert_eq!(attached, probes.len() * 3);
    }
}

/// Four CPUs begin to count under a new key at once.
#[test]
fn no_count_is_lost_at_first_touch_by_four_cpus() {
    if guests_wanted() {
        let probes = ["fexit", "fexit+hash-shared", "fexit@aya"];
        let results = run("first-touch.toml", &["7.2"], &probes);
        for boot in results["boots"].as_array().unwrap() {
            assert_eq!(boot["facts"]["cpus"], 4, "{}", boot["facts"]);
        }
        assert_eq!(assert_exact(&results), probes.len());
    }
}

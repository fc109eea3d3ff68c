// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools cost a process that they are not meant to trace nothing if they attach elsewhere, and the
//! way to their filter if they attach everywhere.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use serde_json::Value;

use crate::common::{bpfassay, guests_wanted, printed, report, results, study, wrong_tools};

/// The largest difference between seeds, as a share (docs/explanation/direct-cost.md).
const OF_SEEDS: f64 = 0.0075;

/// Tools that report nothing.
const TOOLS: [&str; 2] = ["nfs-only.toml", "by-name.toml"];
const VFSSTAT: &str = "vfsstat-libbpf";
/// Tools that count right, in the whole system, by cgroup and by process.
const REPORTING: [&str; 3] = [VFSSTAT, "by-cgroup.toml", "by-process.toml"];

/// Returns the name and the instructions per call of each direct cost among `costs`: mean, smallest
/// and largest run.
fn direct(costs: &Value) -> Vec<(String, [f64; 3])> {
    let counted = costs.as_array().unwrap().iter().filter(|cost| cost["direct"].is_object());
    let of = |cost: &Value| {
        let per_call = &cost["direct"]["value"]["per_call"];
        assert_eq!(per_call["n"], 2, "{cost:#}");
        let number = |name: &str| per_call[name].as_f64().unwrap();
        (cost["name"].as_str().unwrap().to_owned(), ["mean", "min", "max"].map(number))
    };
    counted.map(of).collect()
}

#[test]
fn bystanders_pay_nothing_or_the_way_to_the_filter_with_every_seed() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for kind in ["bystander", "right-tools"] {
        wrong_tools::build(kind, directory.path());
    }
    let mut command = bpfassay(directory.path());
    command.args(["run", "--yes", "--deny", "all", "--output", "out"]).arg(study("bystander.toml"));
    for tool in TOOLS.into_iter().chain(REPORTING) {
        command.args(["--tool", tool]);
    }
    let output = command.output().unwrap();
    // A finding would make the exit code 5: the truth of tools that report must have the bystander.
    assert!(output.status.success(), "{}", printed(&output));
    let out = directory.path().join("out");
    let (results, report) = (results(&out), report(&out));
    let is_meant = |cell: &&Value| ["nfs-only", "by-name", VFSSTAT].iter().any(|tool| cell["tool"] == *tool);
    let cells = results["cells"].as_array().unwrap().iter().filter(is_meant);
    let mut seen = Vec::new();
    for cell in cells {
        let (tool, place) = (cell["tool"].as_str().unwrap(), cell["cell"].as_str().unwrap());
        let (traced, untraced) = (direct(&cell["metrics"]), direct(&cell["bystander"]));
        let names: Vec<&str> = untraced.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["bystander-write", "bystander-read"], "{cell:#}");
        assert_eq!(traced.len(), 2, "{cell:#}");
        for ((_, traced), (name, [mean, min, max])) in traced.iter().zip(&untraced) {
            let (place, traced) = (format!("{place} {name}"), traced[0]);
            assert!(traced > 50.0, "{place}: {traced}");
            match tool {
                "nfs-only" => assert_eq!([*mean, *min, *max], [0.0; 3], "{place}"),
                // The test of the name is cheaper than a hash map.
                "by-name" => assert!(*mean > 50.0 && *mean < traced, "{place}: {mean} of {traced}"),
                // It distinguishes no processes. The workload is on NFS, whose server writes, too.
                _ => assert!(*mean > 50.0 && *mean <= traced * (1.0 + OF_SEEDS), "{place}: {mean} of {traced}"),
            }
            assert!(max - min <= OF_SEEDS * mean, "{place}: {min} to {max}");
        }
        seen.push(tool);
    }
    seen.sort_unstable();
    assert_eq!(seen, ["by-name", "by-name", "nfs-only", "nfs-only", VFSSTAT, VFSSTAT]);
    check_runs(&results);
    for title in ["bill of nfs-only", "bill of by-name", "bill of vfsstat-libbpf"] {
        assert!(report.contains(title), "{report}");
    }
}

/// Checks that each counted run of `nfs-only` costs the bystander 0, and that the bystander did its
/// work in every run. The figures of the other tools were compared beside the bystander.
fn check_runs(results: &Value) {
    let (mut counted, mut beside) = (0, 0);
    for run in results["runs"].as_array().unwrap() {
        let record = &run["record"];
        let figures = &record["outcome"];
        let bystander = &figures["bystander"];
        let phases = bystander["phases"].as_array().unwrap_or_else(|| panic!("{run:#}"));
        let calls = |phase: &Value, operation: &str| phase["moved"][operation]["calls"].as_u64();
        assert_eq!([calls(&phases[0], "write"), calls(&phases[1], "read")], [Some(256); 2], "{run:#}");
        assert_ne!(bystander["cgroup"], figures["cgroup"], "{run:#}");
        let own = bystander["namespace"].as_array().unwrap().last().unwrap();
        assert_eq!(own["file_system"], "tmpfs", "{run:#}");
        assert_ne!(own["device"], figures["mount"]["device"], "{run:#}");
        if record["cell"].as_str().unwrap().ends_with("nfs-only") {
            for cost in run["derived"]["bystander"].as_array().into_iter().flatten() {
                assert_eq!(cost["direct_cost"]["value"], 0.0, "{run:#}");
                counted += 1;
            }
        }
        let rows = figures["whole"]["after"]["tracer"]["rows"].as_array().into_iter().flatten();
        let of_bystander = rows.filter(|row| row["cgroup"] == bystander["cgroup"] && row["operation"] == "read");
        beside += usize::from(of_bystander.filter_map(|row| row["calls"].as_u64()).sum::<u64>() >= 256);
    }
    assert_eq!((counted, beside), (8, 4 * REPORTING.len()));
    let cells = results["cells"].as_array().unwrap().iter();
    let compared = cells.filter_map(|cell| cell["tool_result"]["figures"].as_array().filter(|all| !all.is_empty()));
    assert_eq!(compared.count(), 2 * REPORTING.len());
}

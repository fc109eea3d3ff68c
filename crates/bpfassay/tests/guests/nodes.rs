// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several nodes: guests that share a server and a workload. Results have the figures of each node
//! and their sums; other tests kill a node during a run.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints progress")]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
};

use serde_json::Value;

use crate::common::{bpfassay, guests_wanted, printed, report, results, study};

/// Bytes that each node moves in a phase: 2 ranks · 2 segments · 512 KiB.
const SHARE: u64 = 2 * 2 * (512 << 10);

/// Returns, by phase, the figure `key` of the operation that moves the phase's data, from the
/// derived figures of a run.
fn bytes(run: &Value, key: &str) -> Vec<(String, u64)> {
    let all = run["derived"]["bytes"].as_array().unwrap().iter();
    let moved = all.filter(|figure| figure["workload"]["value"] != 0);
    let of =
        |figure: &Value| (figure["span"]["phase"].as_str().unwrap().to_owned(), figure[key]["value"].as_u64().unwrap());
    moved.map(of).collect()
}

/// Checks every run of `results`: each node moved its share, its tracer and the NFS client's
/// counters saw every byte, and the sums match.
fn check(results: &Value, expected_runs: usize) {
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), expected_runs);
    let both = ["write", "writecheck", "readcheck"].map(|phase| (phase.to_owned(), 2 * SHARE)).to_vec();
    for run in runs {
        let is_traced = run["record"]["run"].as_str().unwrap().ends_with("fexit");
        assert_eq!(bytes(run, "workload"), both);
        assert_eq!(bytes(run, "mountstats"), both);
        if is_traced {
            assert_eq!(bytes(run, "traced"), both);
        }
        let nodes = run["derived"]["nodes"].as_array().unwrap();
        assert_eq!(
            nodes
                .iter()
                .map(|node| (node["node"].as_str().unwrap(), node["ranks"].as_u64().unwrap()))
                .collect::<Vec<_>>(),
            [("node 1", 2), ("node 2", 2)]
        );
        for figure in nodes.iter().flat_map(|node| node["bytes"].as_array().unwrap()) {
            // Written data is read twice: to check the write, and by the read phase.
            let expected = if figure["operation"] == "write" { SHARE } else { 2 * SHARE };
            assert_eq!(figure["moved"]["value"]["bytes"], expected);
            assert_eq!(figure["mountstats"]["value"], expected);
            if is_traced {
                assert_eq!(figure["traced"], figure["moved"]);
            }
        }
        let bandwidths = run["derived"]["metrics"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|metric| metric["name"] == "write" || metric["name"] == "read");
        let values: Vec<_> = bandwidths.map(|metric| metric["value"]["value"].as_f64().unwrap()).collect();
        assert!(values.len() == 2 && values.iter().all(|value| *value > 0.0), "{values:?}");
    }
    // The kernel calibrates the TSC at boot, and gets it wrong on a busy host.
    for facts in
        results["boots"].as_array().unwrap().iter().flat_map(|boot| boot["nodes"].as_array().into_iter().flatten())
    {
        assert_ne!(facts["facts"]["clocksource"], "tsc");
    }
}

#[test]
fn nodes_share_a_file_and_every_byte_is_counted_on_its_node() {
    if !guests_wanted() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = bpfassay(folder.path())
        .args(["run", study("nodes.toml").to_str().unwrap(), "--yes", "--offline", "--output", "out"])
        .output()
        .unwrap();
    let text = printed(&output);
    println!("{text}");
    assert_eq!(output.status.code(), Some(0), "{text}");
    let directory = folder.path().join("out");
    // Two file systems, with a baseline and a probe each.
    check(&results(&directory), 4);
    // Each guest has a console log.
    let mut logs: Vec<_> = fs::read_dir(directory.join("logs"))
        .unwrap()
        .map(|log| log.unwrap().file_name().into_string().unwrap())
        .collect();
    logs.sort();
    let of = |fs: &str| ["", "_node2", "_server"].map(|guest| format!("x86_64_6.12_shared_{fs}_1_boot1{guest}.log"));
    assert_eq!(logs, [of("nfs3"), of("nfs4.2")].concat());
    // The report has the table of nodes.
    let report = report(&directory);
    assert!(report.contains("nodes: study nodes"), "{report}");
}

/// Returns the QEMU processes that `parent` started, in the order of their start.
fn guests(parent: u32) -> Vec<i32> {
    let mut all: Vec<(u64, i32)> = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let entry = entry.unwrap();
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // proc_pid_stat(5): the parent is the fourth field, the start time the 22nd; the name, in
        // parentheses, can contain blanks.
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        if fields[1] == parent.to_string() {
            all.push((fields[19].parse().unwrap(), pid));
        }
    }
    all.sort_unstable();
    all.into_iter().map(|(_, pid)| pid).collect()
}

/// Runs one block, and kills the `nth` started guest when the first run of the block has ended.
/// Returns the output.
fn with_killed(directory: &Path, nth: usize) -> String {
    let mut child = bpfassay(directory)
        .args(["run", study("nodes.toml").to_str().unwrap(), "--yes", "--offline", "--output", "out", "--jobs", "1"])
        .args(["--cell", "x86_64_6.12_shared_nfs4.2_fexit", "--message-format", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut events = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let mut text = String::new();
    assert!(
        events.by_ref().any(|line| {
            text.push_str(&line);
            line.contains("\"event\":\"run_ended\"")
        }),
        "no run ended: {text}"
    );
    let guests = guests(child.id());
    assert_eq!(guests.len(), 3, "a server and two nodes");
    rustix::process::kill_process(rustix::process::Pid::from_raw(guests[nth]).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    text.extend(events);
    assert!(child.wait().unwrap().success(), "{text}");
    text
}

#[test]
fn a_boot_whose_node_or_server_is_killed_is_repeated_whole() {
    if !guests_wanted() {
        return;
    }
    // The server is started first, then the nodes.
    for (nth, name) in [(0, "server"), (2, "node 2")] {
        let folder = tempfile::tempdir().unwrap();
        let printed = with_killed(folder.path(), nth);
        let results = results(&folder.path().join("out"));
        let boots = results["boots"].as_array().unwrap();
        assert_eq!(boots.len(), 2, "{printed}");
        let failure = boots[0]["failure"]["excerpt"][0].as_str().unwrap();
        assert!(failure.starts_with(&format!("{name}: ")), "{failure}");
        check(&results, 2);
    }
}

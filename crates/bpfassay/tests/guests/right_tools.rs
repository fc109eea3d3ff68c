// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools that count right with programs of Debian, in a guest: a bpftrace script by cgroup, a
//! Python script with a module in the same directory, and vfsstat of libbpf-tools. A gate denies
//! everything, and nothing is found. `ci/records/right-tools` does the same with all right tools,
//! on three architectures.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{bpfassay, guests_wanted, printed, results, study, without_plugins, wrong_tools};

#[test]
fn nothing_is_found_of_bpftrace_python_and_libbpf_tools() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    wrong_tools::build("more-right-tools", directory.path());
    let programs = tempfile::tempdir().unwrap();
    let mut command = bpfassay(directory.path());
    command.args(["run", "--yes", "--output", "out", "--deny", "all", "--arch", "x86_64"]);
    command
        .args(["--tool", "bpftrace-cgroup.toml", "--tool", "python-events.toml", "--tool", "vfsstat-libbpf"])
        .arg(study("right-tools.toml"));
    let output = command.env("PATH", without_plugins(programs.path())).output().unwrap();
    // A finding would make the exit code 5.
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    let results = results(&directory.path().join("out"));
    for tool in ["bpftrace-cgroup", "python-events", "vfsstat-libbpf"] {
        let cell = results["cells"].as_array().unwrap().iter().find(|cell| cell["tool"] == tool).unwrap();
        assert_eq!(cell["attach"]["outcome"], "attached", "{cell:#}");
        // An empty comparison would have no finding either.
        let figures = cell["tool_result"]["figures"].as_array().unwrap();
        let of_reads = figures.iter().filter(|figure| figure["operations"][0] == "read");
        assert!(of_reads.clone().count() > 0, "{figures:#?}");
        assert!(of_reads.into_iter().any(|figure| figure["reported"].as_u64() > Some(0)), "{figures:#?}");
    }
}

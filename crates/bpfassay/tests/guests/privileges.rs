// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools with few capabilities, as another user, in a user namespace and on a kernel in lockdown:
//! those that may not do their work are refused with what they lack, and others start.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use serde_json::Value;

use crate::common::{guests_wanted, study, tool_cells, wrong_tools};

/// A refused tool, the finding, and a part of the evidence.
type Wrong = (&'static str, &'static str, &'static str);

/// Two kernels of two architectures.
const TARGETS: [&str; 4] = ["--arch", "x86_64,aarch64", "--kernel", "6.12,7.2"];

/// Measures the tools of tests/privileges, which are in `directory`, on [`TARGETS`].
fn cells(directory: &Path, command: &[&str], code: i32) -> Vec<Value> {
    tool_cells(directory, "out", &[command, &TARGETS].concat(), code)
}

/// Asserts that the tools `wrong` are refused as they should be, and that the others start.
fn assert_refused(cells: &[Value], wrong: &[Wrong]) {
    for cell in cells {
        let (tool, target) = (cell["tool"].as_str().unwrap(), &cell["target"]);
        let findings = cell["tool_result"]["findings"].as_array().unwrap();
        let of_start = |finding: &&Value| {
            finding["status"] == "found" && finding["kind"].as_str().unwrap().starts_with("does-not-")
        };
        let found: Vec<&Value> = findings.iter().filter(of_start).collect();
        match wrong.iter().find(|(name, ..)| *name == tool) {
            None => {
                assert_eq!(cell["attach"]["outcome"], "attached", "{tool} on {target}: {found:#?}");
                assert!(found.is_empty(), "{tool} on {target}: {found:#?}");
            }
            Some((_, kind, part)) => {
                assert_eq!(found.len(), 1, "{tool} on {target}: {found:#?}");
                let evidence = found[0]["evidence"].to_string();
                assert_eq!(found[0]["kind"], *kind, "{tool} on {target}: {evidence}");
                assert!(evidence.contains(part), "{tool} on {target}: {evidence}");
            }
        }
    }
}

#[test]
fn tools_that_lack_a_capability_are_refused_with_its_name_and_others_start() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let tools: Vec<String> =
        wrong_tools::build("privileges", directory.path()).iter().map(|name| format!("{name}.toml")).collect();
    let command: Vec<&str> = ["check"].into_iter().chain(tools.iter().map(String::as_str)).collect();
    // Debian's kernels set kernel.perf_event_paranoid to 3, with which only CAP_SYS_ADMIN opens
    // perf events.
    let wrong = [
        ("object-without-perfmon", "does-not-load", "it starts with CAP_PERFMON in addition, and with nothing less"),
        (
            "opensnoop-of-user",
            "does-not-attach",
            "it starts as user 1000 with CAP_DAC_READ_SEARCH and CAP_SYS_ADMIN in addition",
        ),
        ("bpftrace-of-user", "does-not-start", "bpftrace currently only supports running as the root user"),
        ("in-user-namespace", "does-not-attach", "failed to auto-attach: -13"),
        ("unprivileged", "does-not-load", "it starts as user 1000 with CAP_BPF, and with nothing less"),
    ];
    let cells = cells(directory.path(), &command, 4);
    assert_refused(&cells, &wrong);
    assert_eq!(cells.len(), 4 * tools.len());
}

#[test]
fn the_smallest_set_of_capabilities_of_a_tool_is_found() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let command = ["check", "--capabilities", "vfs-calls", "opensnoop-libbpf", "biolatency-libbpf"];
    let cells = cells(directory.path(), &command, 0);
    for cell in &cells {
        let search = &cell["tool_result"]["capabilities"];
        let needed = search["needs"]["capabilities"].as_array().unwrap().iter();
        let needed: Vec<&str> = needed.map(|one| one["capability"].as_str().unwrap()).collect();
        // Tracepoints of system calls are perf events.
        let expected: &[&str] = match cell["tool"].as_str().unwrap() {
            "opensnoop-libbpf" => &["CAP_SYS_ADMIN"],
            _ => &["CAP_PERFMON", "CAP_BPF"],
        };
        assert_eq!(needed, expected, "{} on {}: {search:#}", cell["tool"], cell["target"]);
    }
    assert_eq!(cells.len(), 12);
}

/// Debian's kernels set kernel.unprivileged_bpf_disabled to 2.
#[test]
fn a_setting_of_the_guest_lets_users_load_programs() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    wrong_tools::build("privileges", directory.path());
    let text = fs::read_to_string(study("lockdown.toml")).unwrap();
    let setting = "sysctl.kernel.unprivileged_bpf_disabled=0";
    fs::write(directory.path().join("study.toml"), text.replace("lockdown=confidentiality", setting)).unwrap();
    let cells = cells(directory.path(), &["run", "./study.toml", "--tool", "unprivileged.toml"], 0);
    assert_refused(&cells, &[]);
    assert_eq!(cells.len(), 4);
}

#[test]
fn a_kernel_in_lockdown_refuses_tools_that_read_the_memory_of_the_kernel() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    wrong_tools::build("privileges", directory.path());
    let study = study("lockdown.toml").display().to_string();
    let tools = ["--tool", "object-with-perfmon.toml", "--tool", "vfsstat-libbpf", "--tool", "ceems-layout"];
    let command: Vec<&str> = ["run", &study].into_iter().chain(tools).collect();
    let cells = cells(directory.path(), &command, 4);
    assert_refused(&cells, &[("ceems-layout", "does-not-load", "cannot use helper bpf_probe_read")]);
    assert_eq!(cells.len(), 12);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Provokes every pitfall that the tracer looks for in a real guest, and finds it in the results.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it skips")]

use std::{env, fs};

use serde_json::Value;

use crate::common::{bpfassay, printed, study};

/// Runs the study `pitfalls` and returns the results; `None` if guests are not wanted. In the
/// study, each line that begins with the first text of a pair in `lines` is replaced by the second
/// text.
fn run(lines: &[(&str, &str)]) -> Option<Value> {
    if env::var("BPFASSAY_VM_TESTS").is_ok_and(|value| value == "required") {
        Some(run_wanted(lines))
    } else {
        println!("skipped: boots guests; set BPFASSAY_VM_TESTS=required (ci/test does)");
        None
    }
}

fn run_wanted(lines: &[(&str, &str)]) -> Value {
    let mut changed = String::new();
    let mut replaced = 0;
    for line in fs::read_to_string(study("pitfalls.toml")).unwrap().lines() {
        match lines.iter().find(|(beginning, _)| line.starts_with(beginning)) {
            Some((_, other)) => {
                replaced += 1;
                changed.push_str(other);
            }
            None => changed.push_str(line),
        }
        changed.push('\n');
    }
    assert_eq!(replaced, lines.len(), "{changed}");
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("pitfalls.toml"), changed).unwrap();
    let output =
        bpfassay(directory.path()).args(["run", "pitfalls.toml", "--yes", "--output", "out"]).output().unwrap();
    println!("{}", printed(&output));
    serde_json::from_slice(&fs::read(directory.path().join("out/results.json")).unwrap()).unwrap()
}

fn cell<'a>(results: &'a Value, probe: &str) -> &'a Value {
    results["cells"].as_array().unwrap().iter().find(|cell| cell["probe"] == probe).unwrap()
}

/// Returns pitfall, subject and detail of every finding in a cell.
fn found(cell: &Value) -> Vec<(&str, &str, &str)> {
    let findings = cell["findings"].as_array().unwrap();
    findings
        .iter()
        .map(|found| &found["finding"])
        .map(|finding| ["pitfall", "subject", "detail"].map(|key| finding[key].as_str().unwrap()).into())
        .collect()
}

/// Checks that `pitfall` was found on `subject`; returns its detail.
fn assert_found<'a>(cell: &'a Value, pitfall: &str, subject: &str) -> &'a str {
    let all = found(cell);
    let this = all.iter().find(|(kind, about, _)| *kind == pitfall && about.contains(subject));
    assert!(this.is_some(), "no {pitfall} on {subject}: {all:#?}, {cell:#}");
    this.unwrap().2
}

#[test]
fn functions_that_are_not_what_they_seem() {
    // The functions are in Debian's 7.2 for x86_64. The first pair is a function that GCC has only
    // as `.isra`, and an entry of the CPU, which must not have kprobes. The second pair is
    // `notrace`, and a name that a dozen drivers use. The third pair is split by GCC, and missing.
    let pairs =
        [("filemap_readahead", "asm_exc_debug"), ("rcu_is_watching", "name_show"), ("vfs_statfs", "vfs_nonexistent")];
    let pairs = pairs.map(|(read, write)| {
        let arguments = format!(r#"arguments = ["--function", "vfs_read={read}", "--function", "vfs_write={write}"]"#);
        run(&[("arguments", &arguments)])
    });
    let [Some(renamed), Some(notrace), Some(split)] = pairs else { return };
    for probe in ["kprobe", "fexit"] {
        let [renamed, notrace, split] = [&renamed, &notrace, &split].map(|results| cell(results, probe));
        assert_eq!(renamed["attach"]["outcome"], "refused", "{renamed:#}");
        assert!(assert_found(renamed, "symbol-renamed", "filemap_readahead").contains(".isra."));
        assert_found(notrace, "not-traceable", "rcu_is_watching");
        assert_found(notrace, "symbol-ambiguous", "name_show");
        assert!(assert_found(notrace, "prototype-differs", "rcu_is_watching").contains("bool rcu_is_watching(void)"));
        assert!(assert_found(split, "symbol-inlined", "vfs_statfs").contains(".part."));
        assert_found(split, "symbol-missing", "vfs_nonexistent");
    }
    assert_found(cell(&renamed, "kprobe"), "blacklisted", "asm_exc_debug");
}

#[test]
fn a_function_that_others_hook() {
    let parameters = r#"[guest]
kernel_parameters = ["ftrace=function", "ftrace_filter=vfs_read", "kprobe_event=p,vfs_write"]
[design]"#;
    let Some(results) = run(&[("arguments", ""), ("[design]", parameters)]) else { return };
    for probe in ["kprobe", "fexit"] {
        let cell = cell(&results, probe);
        assert_eq!(cell["attach"]["outcome"], "attached", "{cell:#}");
        assert!(assert_found(cell, "function-shared", "vfs_read").contains("ftrace has 1 callback"));
        assert!(assert_found(cell, "function-shared", "vfs_write").contains("kprobe"));
    }
}

#[test]
fn a_probe_inside_another() {
    // The program on vfs_write calls this helper, on which the kernel runs no second kprobe then.
    let arguments = r#"arguments = ["--function", "vfs_read=bpf_get_current_cgroup_id"]"#;
    let Some(results) = run(&[("arguments", arguments), ("probes", r#"probes = ["none", "kprobe"]"#)]) else { return };
    let detail = assert_found(cell(&results, "kprobe"), "missed-probes", "read");
    assert!(number(detail) >= 16, "every one of the workload's 16 writes: {detail}");
}

#[test]
fn programs_that_are_preempted() {
    // Several ranks share one CPU of a preemptible kernel: a trampoline skips a program that is
    // already running on that CPU.
    let Some(results) = run(&[
        ("arguments", ""),
        ("probes", r#"probes = ["none", "fexit"]"#),
        (
            "options",
            "options = [\"-a\", \"POSIX\", \"-b\", \"16m\", \"-t\", \"1k\", \"-w\", \"-r\", \"-F\"]\nranks = 4",
        ),
    ]) else {
        return;
    };
    assert_found(cell(&results, "fexit"), "recursion-misses", "");
}

/// Returns the number at the beginning of a detail.
fn number(detail: &str) -> u64 {
    detail.split(' ').next().unwrap().parse().unwrap()
}

/// Makes many small transfers.
const MANY: &str = r#"options = ["-a", "POSIX", "-b", "4m", "-t", "1k", "-w", "-r"]"#;

#[test]
fn maps_that_are_too_small() {
    let Some(results) = run(&[
        ("arguments", r#"arguments = ["--map-entries", "1"]"#),
        ("probes", r#"probes = ["none", "fexit", "fexit+hash-shared", "fexit+lru-shared", "fexit+ringbuf"]"#),
        ("options", MANY),
    ]) else {
        return;
    };
    for (probe, pitfall) in [
        ("fexit", "map-insert-failures"),
        ("fexit+hash-shared", "map-insert-failures"),
        ("fexit+lru-shared", "lru-evictions"),
        ("fexit+ringbuf", "ring-buffer-drops"),
    ] {
        assert!(number(assert_found(cell(&results, probe), pitfall, "")) > 0, "{probe}");
    }
}

#[test]
fn more_calls_at_once_than_a_kretprobe_watches() {
    // Several ranks wait for the NFS server inside vfs_read and vfs_write, and each function has
    // one place.
    let Some(results) = run(&[
        ("arguments", r#"arguments = ["--maxactive", "1"]"#),
        ("probes", r#"probes = ["none", "kretprobe"]"#),
        ("type", r#"type = "nfs""#),
        (
            "options",
            "options = [\"-a\", \"POSIX\", \"-b\", \"1m\", \"-t\", \"64k\", \"-w\", \"-r\", \"-e\"]\nranks = 4",
        ),
    ]) else {
        return;
    };
    let kretprobe = cell(&results, "kretprobe");
    assert_eq!(kretprobe["attach"]["outcome"], "attached", "{kretprobe:#}");
    assert!(number(assert_found(kretprobe, "maxactive-exhausted", "_return")) > 0);
}

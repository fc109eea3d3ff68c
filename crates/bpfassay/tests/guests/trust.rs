// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults around guests: tools that do harm after their run, guests that are killed, hosts that
//! fail. Nothing is blamed wrongly, nothing is lost, and the figures equal those of a run without
//! faults.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{bpfassay, guests_wanted, printed, results, stand_in_for_qemu, study, without_plugins};

/// Returns `bpfassay run`, with the testbed that the environment names, if any.
fn run(directory: &Path) -> Command {
    let mut command = bpfassay(directory);
    command.args(["run", "--yes"]);
    if let Some(manifest) = std::env::var_os("BPFASSAY_TEST_MANIFEST") {
        command.arg("--manifest").arg(manifest);
    }
    command
}

/// Starts a new run of the study into `out`.
fn begin(directory: &Path, out: &str) -> Command {
    let mut command = run(directory);
    command.arg(study("trust.toml")).args(["--output", out, "--jobs", "1"]);
    command
}

/// Returns the output of the command, which must exit with `code`.
fn ends(command: &mut Command, code: i32) -> String {
    let output = command.output().unwrap();
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(code), "{printed}");
    printed
}

fn fingerprint(printed: &str) -> &str {
    printed.lines().find_map(|line| line.strip_prefix("fingerprint of the raw figures: ")).unwrap()
}

fn record(run: &Value) -> (&str, &Value) {
    (run["record"]["run"].as_str().unwrap(), &run["record"]["outcome"])
}

/// Starts `command` and waits until it reports that a run with `what` in its name was measured.
fn until(command: &mut Command, what: &str) -> (Child, std::thread::JoinHandle<String>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut shown = Vec::new();
    let found = lines.by_ref().any(|line| {
        let is_it = line.contains(what) && line.contains(": measured in");
        shown.push(line);
        is_it
    });
    assert!(found, "no line with {what}:\n{}", shown.join("\n"));
    let rest = std::thread::spawn(move || {
        shown.extend(lines);
        shown.join("\n")
    });
    (child, rest)
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.try_into().unwrap()).unwrap(), signal).unwrap();
}

/// Returns the QEMU process that `process` started.
fn qemu_of(process: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of_tasks = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
    let all: String = of_tasks.chain([children]).collect::<Vec<_>>().join(" ");
    // The process of the lock's QEMU has the name of its dynamic loader.
    let is_qemu = |process: &&str| {
        fs::read_to_string(format!("/proc/{process}/cmdline")).is_ok_and(|line| line.contains("qemu-system"))
    };
    all.split_whitespace().find(is_qemu).unwrap().parse().unwrap()
}

#[test]
fn a_panic_after_a_tools_run_is_attributed_to_that_tool_only() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/harmful-tools");
    let mut command = begin(directory.path(), "out");
    for tool in ["panics-after-30", "panics-after-600"] {
        command.arg("--tool").arg(tools.join(format!("{tool}.toml")));
    }
    let printed = ends(&mut command, 4);
    let results = results(&directory.path().join("out"));
    let runs = results["runs"].as_array().unwrap();
    let mut after = 0;
    for (run, outcome) in runs.iter().map(record) {
        if run.contains("_panics-after-") {
            assert_eq!(outcome["type"], "failed", "{run}: {outcome:#}\n{printed}");
            if outcome["kind"] != "not_tried" {
                assert!(["panic", "unsound"].contains(&outcome["kind"].as_str().unwrap()), "{run}: {outcome:#}");
                assert!(outcome["after"]["ms"].is_u64(), "{run}: {outcome:#}");
                let first = outcome["excerpt"][0].as_str().unwrap();
                assert!(first.contains(" ms after this run"), "{first}");
                after += 1;
            }
        } else {
            assert_eq!(outcome["type"], "measured", "{run}: {outcome:#}\n{printed}");
        }
    }
    // The warm-up, the baseline, its control, a probe configuration and two tools.
    assert_eq!((runs.len(), after), (6, 2), "{printed}");
    assert!(
        printed.contains("FAILED: kernel panic after the run") || printed.contains("FAILED: guest left changed"),
        "{printed}"
    );
    // The final measurements come from one boot.
    let boots = runs.iter().filter(|run| run["record"]["outcome"]["type"] == "measured");
    let boots: std::collections::BTreeSet<u64> = boots.map(|run| run["record"]["boot"].as_u64().unwrap()).collect();
    assert_eq!(boots.len(), 1, "{boots:?}");
}

/// A name, and the steps in a directory that must yield figures with the given fingerprint.
type Case = (&'static str, fn(&Path, &str));

/// Each case must yield the figures of one run of the study without faults. Each has a separate
/// directory.
#[test]
fn whatever_happens_to_a_block_its_figures_are_the_same() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let printed = ends(&mut begin(directory.path(), "whole"), 0);
    let whole = fingerprint(&printed);
    let cases: [Case; 3] = [
        ("interrupted in the middle of a block and resumed", interrupted_in_the_middle_of_a_block_and_resumed),
        ("a guest that is killed from outside is booted again", a_guest_that_is_killed_from_outside_is_booted_again),
        (
            "a QEMU that does not start is no tool's fault, and a good one goes on",
            a_qemu_that_does_not_start_is_no_tools_fault_and_a_good_one_goes_on,
        ),
    ];
    let fails = |(_, case): &&Case| {
        let directory = tempfile::tempdir().unwrap();
        std::panic::catch_unwind(|| case(directory.path(), whole)).is_err()
    };
    let failed: Vec<&str> = cases.iter().filter(fails).map(|(name, _)| *name).collect();
    assert_eq!(failed, [""; 0]);
}

fn interrupted_in_the_middle_of_a_block_and_resumed(directory: &Path, whole: &str) {
    let tried = [(Signal::INT, Some(130), "_r1_"), (Signal::KILL, None, "_r1_"), (Signal::KILL, None, "_w1_")];
    for (at, (how, code, after)) in tried.into_iter().enumerate() {
        let out = format!("out{at}");
        let (mut child, rest) = until(&mut begin(directory, &out), after);
        signal(child.id(), how);
        assert_eq!(child.wait().unwrap().code(), code);
        drop(rest.join());
        let resume = |code| ends(run(directory).args(["--resume", &out]), code);
        let printed = resume(0);
        assert_eq!(fingerprint(&printed), whole, "{how:?}: {printed}");
        let journal = directory.join(&out).join("journal.jsonl");
        let before = fs::read(&journal).unwrap();
        // A complete run is not changed.
        assert_eq!(fingerprint(&resume(0)), whole);
        assert!(fs::read(&journal).unwrap() == before, "something was added");
    }
}

fn a_guest_that_is_killed_from_outside_is_booted_again(directory: &Path, whole: &str) {
    let (child, rest) = until(&mut begin(directory, "out"), "_r1_");
    signal(qemu_of(child.id()), Signal::KILL);
    let output = child.wait_with_output().unwrap();
    let shown = rest.join().unwrap();
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(shown.contains("host failure") && shown.contains("no run is to blame"), "{shown}");
    assert!(shown.contains("boot 2: all that is left of the block, again from its warm-up"), "{shown}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(fingerprint(&printed), whole, "{printed}\n{shown}");
}

/// Creates the directory of a QEMU that prints its version and starts no guest.
fn failing_qemu(directory: &Path) -> PathBuf {
    let bin = directory.join("bin");
    fs::create_dir_all(&bin).unwrap();
    stand_in_for_qemu(&bin, "aarch64", "*' -mon '*) echo 'no such machine today' >&2; exit 1");
    bin
}

fn a_qemu_that_does_not_start_is_no_tools_fault_and_a_good_one_goes_on(directory: &Path, whole: &str) {
    let bin = failing_qemu(directory);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    // This QEMU must not boot a trial guest to find out whether KVM works.
    let mut command = begin(directory, "out");
    let printed = ends(command.args(["--accelerator", "tcg"]).env("PATH", path), 3);
    assert!(
        printed.contains("host failure: booted again after 1 s") && printed.contains("booted again after 5 s"),
        "{printed}"
    );
    assert!(printed.contains("runs were not measured; continue with: bpfassay run --resume out"), "{printed}");
    assert!(printed.contains("no such machine today"), "{printed}");
    for (run, outcome) in results(&directory.join("out"))["runs"].as_array().unwrap().iter().map(record) {
        assert_eq!(outcome["kind"], "host", "{run}: {outcome:#}");
    }
    let printed = ends(run(directory).args(["--resume", "out"]), 0);
    assert_eq!(fingerprint(&printed), whole, "{printed}");
}

#[test]
fn a_run_like_another_has_its_guests_and_its_figures_or_is_refused() {
    if !guests_wanted() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    // An empty cache has no QEMU of the lock.
    let own = directory.join("qemu");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    stand_in_for_qemu(&own, "aarch64", "'') exit 1");
    let path = format!("{}:{}", own.display(), std::env::var("PATH").unwrap());
    let smoke = |command: &mut Command, out: &str, code| {
        command.arg(study("smoke.toml")).args(["--arch", "aarch64", "--clock", "instructions", "--output", out]);
        ends(command, code)
    };
    let first = smoke(run(directory).env("PATH", &path), "first", 0);
    let like = || {
        let mut command = bpfassay(directory);
        // There is nothing to build guests from.
        command.args(["--offline", "--cache", "empty", "run", "--yes", "--like", "first"]).env("PATH", &path);
        command
    };
    let second = smoke(&mut like(), "second", 0);
    assert_eq!(fingerprint(&second), fingerprint(&first));
    let guests = |out: &str| results(&directory.join(out))["provenance"][0]["targets"].clone();
    assert_eq!(guests("second"), guests("first"));

    let programs = directory.join("another-qemu");
    fs::create_dir(&programs).unwrap();
    let refused = smoke(like().env("PATH", without_plugins(&programs)), "third", 2);
    assert!(refused.contains("QEMU for aarch64 was ") && !directory.join("third").exists(), "{refused}");
    let refused = ends(like().args(["kernel-features", "--arch", "x86_64", "--kernel", "5.10"]), 2);
    assert!(refused.contains("they have no guest for x86_64 5.10, only "), "{refused}");
    let refused = ends(like().args(["quick", "--newest"]), 2);
    assert!(refused.contains("--like names the kernels that are used"), "{refused}");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Injects each fault into scripted guests. `chaos --seed N --faults M` does more.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it saw")]

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// So many seeds draw every fault at least once.
const SEEDS: &str = "3000";

/// Returns the command. Cargo builds it with the whole workspace, but not for this crate alone.
fn bpfassay() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_chaos")).with_file_name("bpfassay");
    let program = env::var_os("BPFASSAY_CHAOS_COMMAND").map_or(beside, PathBuf::from);
    assert!(program.is_file(), "{} is not built: cargo build -p bpfassay", program.display());
    program
}

fn chaos(args: &[&str], command: &Path) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_chaos")).args(args).arg("--bpfassay").arg(command).output().unwrap();
    println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    output
}

/// Takes one seed per fault. Among 200 consecutive seeds, two thirds repeat a fault, and a quarter
/// of the faults does not occur.
#[test]
fn each_fault_once() {
    let output = chaos(&["--seed", "1", "--faults", SEEDS, "--once", "--parallel", "6", "--verbose"], &bpfassay());
    assert!(output.status.success());
    let faults = bpfassay_chaos::fault::all().len();
    let summary = format!("{faults} trials of {faults} faults: 0 violations");
    assert!(String::from_utf8_lossy(&output.stdout).contains(&summary), "not {summary}");
}

/// Writes a program that runs the real command and then the shell code `after`.
fn spoiling(directory: &Path, after: &str) -> PathBuf {
    let path = directory.join("bpfassay");
    // `after` must not change the journal of the study without faults, the reference.
    let text = format!("#!/bin/sh\n'{}' \"$@\"\ncode=$?\n{after}\nexit $code\n", bpfassay().display());
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Returns what `chaos` prints for a fault that changes nothing, if the command ends with `after`.
fn violation(after: &str) -> String {
    violation_of("agent/talkative", after)
}

/// Returns what `chaos` prints for a seed of `fault`, with a command that does `after` at its end.
fn violation_of(fault: &str, after: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    // Another user can run the command.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let command = spoiling(directory.path(), after);
    let output = chaos(&["--seed", "1", "--only", fault], &command);
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Selects the study with a fault: the stand-in has recorded an action.
const DISTURBED: &str = "ls state/done-* >/dev/null 2>&1 &&";

#[test]
fn what_is_left_behind_is_found() {
    let printed = violation(&format!("{DISTURBED} {{ : >\"$TMPDIR/bpfassay-forgotten\"; sleep 100 & }}"));
    assert!(printed.contains("left behind: the file") && printed.contains("bpfassay-forgotten"), "{printed}");
    assert!(printed.contains("left behind: the process") && printed.contains("sleep 100"), "{printed}");
}

#[test]
fn another_exit_code_is_found() {
    let printed = violation(&format!("{DISTURBED} code=1"));
    assert!(printed.contains("ended with Code(1) where its records mean 0"), "{printed}");
}

#[test]
fn a_lost_measurement_is_found() {
    let printed = violation(&format!(
        "{DISTURBED} sed -i '$d' results/out/journal.jsonl && sed -i '$d' results/out/journal.jsonl"
    ));
    assert!(printed.contains("lost: ") || printed.contains("the journal cannot be read"), "{printed}");
}

#[test]
fn bytes_for_the_terminal_are_found() {
    let printed = violation(&format!("{DISTURBED} printf '\\033[2J'"));
    assert!(printed.contains("a control character for the terminal: U+001B"), "{printed}");
}

/// Does `after`, which is forbidden, in the room of the drawn trial, and expects `expected` in what
/// `chaos` prints.
fn harm_is_found(fault: &str, after: &str, expected: &str) {
    let printed = violation_of(fault, after);
    assert!(printed.contains(expected), "{fault}: {printed}");
}

#[test]
fn a_tree_that_harms_the_host_is_found() {
    harm_is_found("tree/deb", "mv host/lib/modules/6.9.9-host cache/", "modules.builtin is gone");
    harm_is_found("tree/rpm", "cp host/file cache/read", "the host was read into");
    harm_is_found("tree/like", "[ -d home/results ] && : >.git/planted", ".git/planted was made");
}

#[test]
fn a_bundle_that_harms_the_host_is_found() {
    harm_is_found("bundle/own-qemu", ": >started", "made outside of its directories: started");
    harm_is_found("bundle/writes-out", ": >host/directory/new", "host/directory/new was made");
    let large = "mkdir -p cache/bpfassay && truncate -s 999999999 cache/bpfassay/zeros";
    harm_is_found("bundle/oversize", large, "the cache has");
    let other = format!("mkdir -p cache/bpfassay/objects/00 && : >cache/bpfassay/objects/00/{}", "0".repeat(62));
    harm_is_found("bundle/altered", &other, "another content");
}

#[test]
fn a_results_directory_that_harms_the_host_is_found() {
    let changes = "[ -e host/for-0 ] && echo >>host/for-0/file";
    harm_is_found("planted/before", changes, "host/for-0/file was changed");
    harm_is_found("planted/resumed", changes, "host/for-0/file was changed");
    harm_is_found("planted/meanwhile", &format!("{DISTURBED} echo >>host/file"), "host/file was changed");
    harm_is_found("planted/read", "[ -e host/for-0 ] && code=1", "the command ended with Code(1)");
}

#[test]
fn two_commands_that_harm_each_other_are_found() {
    harm_is_found("twice/at-once", "case $code in 0) code=3; esac", "the two commands ended with");
    harm_is_found("twice/one-paused", ": >unknown", "made outside of its directories: unknown");
    harm_is_found("twice/one-killed", "printf '\\033[2J' >&2", "a control character for the terminal");
}

#[test]
fn a_command_that_waits_for_ever_is_found() {
    let printed = violation_of("planted/read", "[ -e host/for-0 ] && sleep 1000");
    assert!(printed.contains("ended with Never"), "{printed}");
}

#[test]
fn a_seed_names_the_same_faults_every_time() {
    let list = || chaos(&["--list", "--seed", "5", "--faults", "50"], &bpfassay()).stdout;
    assert_eq!(list(), list());
    assert!(!list().is_empty());
}

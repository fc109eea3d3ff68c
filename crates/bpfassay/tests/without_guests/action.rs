// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests `ci/action`, which does everything for `action.yml`, with releases in local directories in
//! the layout of `ci/release/make`. Stored results replace a measurement; `tests/guests/action.rs`
//! measures.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::common::{
    needs,
    release::{Ended, action, program, release, sums},
};

/// Creates a program that writes the stored results instead of measuring, and is the built command
/// otherwise.
fn stand_in(directory: &Path, code: i32, prints: &str) -> String {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/quick/results.json.xz");
    let (arguments, printed) = (directory.join("arguments"), directory.join("printed"));
    fs::write(&printed, prints).unwrap();
    format!(
        r#"#!/usr/bin/env bash
set -euo pipefail
[ "$1" = run ] || exec {command} "$@"
printf '%s\n' "$@" >{arguments}
while [ "$1" != --output ]; do shift; done
mkdir "$2"
[ {code} -eq 3 ] || xz -dc {packed} >"$2/results.json"
cat {printed}
exit {code}
"#,
        command = env!("CARGO_BIN_EXE_bpfassay"),
        arguments = arguments.display(),
        packed = packed.display(),
        printed = printed.display(),
    )
}

/// Creates a release with such a program, an empty packed testbed, and the programs of a guest.
fn of_stand_in(directory: &Path, code: i32, prints: &str) -> PathBuf {
    let packed = directory.join("testbed-quick");
    fs::create_dir(&packed).unwrap();
    fs::write(packed.join("manifest.json"), "{}").unwrap();
    let script = stand_in(directory, code, prints);
    let release = release(directory, script.as_bytes(), Some(&packed));
    fs::write(release.join("payload-x86_64-0.json"), "{}").unwrap();
    sums(&release);
    release
}

fn arguments(directory: &Path) -> Vec<String> {
    let text = fs::read_to_string(directory.join("arguments")).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_release_is_run_and_what_it_found_is_written_for_the_ci_system() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    // A runner must not obey a guest's output.
    let release = of_stand_in(directory.path(), 5, "::error::forged\n##[error]forged\n");
    let tools = "vfsstat\n./my tool; reboot.toml\n";
    let inputs = [
        ("TOOL", tools),
        ("GATES", "byte_error=0\noverhead = \"5%\", probes = [\"fexit\"]"),
        ("DENY", "all"),
        ("KERNELS", "6.12,$(reboot)"),
        ("ARCH", "x86_64"),
    ];
    let Ended { code, stdout, stderr } = action(directory.path(), &release, &inputs);
    assert_eq!(code, Some(5), "the exit code is that of run: {stdout}\n{stderr}");

    let run = arguments(directory.path());
    let manifest = run.iter().position(|argument| argument == "--manifest").map(|at| run[at + 1].clone()).unwrap();
    assert!(manifest.ends_with("/testbed-quick/manifest.json"), "{run:?}");
    assert!(!Path::new(&manifest).exists(), "what was unpacked is gone");
    assert_eq!(run[..5], ["run", "quick", "--yes", "--output", "out/results"]);
    let rest = [
        "--tool=vfsstat",
        "--tool=./my tool; reboot.toml",
        "--gate=byte_error=0",
        "--gate=overhead = \"5%\", probes = [\"fexit\"]",
        "--kernel=6.12,$(reboot)",
        "--arch=x86_64",
        "--deny=all",
    ];
    assert_eq!(run[7..], rest, "each value is one argument");

    for (file, begins) in [
        ("out/report.html", "<!doctype html>"),
        ("out/junit.xml", "<?xml "),
        ("out/badge.json", "{\n  \"schemaVersion\": 1"),
        ("out/bencher.json", "{\n  \""),
        ("summary", "### bpfassay: study quick"),
        ("outputs", "output=out\nexit-code=5\n"),
    ] {
        let text = fs::read_to_string(at(file)).unwrap();
        assert!(text.to_lowercase().starts_with(&begins.to_lowercase()), "{file}: {}", text.lines().next().unwrap());
    }
    // After the token, the runner ignores commands until the token comes again.
    let (before, rest) = stdout.split_once("::stop-commands::").unwrap();
    let (token, rest) = rest.split_once('\n').unwrap();
    let (measured, after) = rest.split_once(&format!("\n::{token}::\n")).unwrap();
    assert!(token.len() > 32 && measured.contains("::error::forged") && measured.contains("##[error]"), "{stdout}");
    let is_ours = |line: &str| line.starts_with("::notice title=bpfassay%2C study quick::");
    assert!(!before.contains("::") && after.lines().any(is_ours) && !after.contains("forged"), "{stdout}");
}

#[test]
fn without_a_packed_testbed_the_programs_of_the_release_are_used() {
    let directory = tempfile::tempdir().unwrap();
    let release = of_stand_in(directory.path(), 0, "");
    let study = directory.path().join("mine.toml");
    for (name, value) in [("TESTBED", "none"), ("STUDY", study.to_str().unwrap())] {
        let Ended { code, stdout, .. } = action(directory.path(), &release, &[(name, value)]);
        assert!(code == Some(0) && stdout.contains("no packed testbed: guests are made from packages"), "{stdout}");
        let run = arguments(directory.path());
        let from = run.iter().position(|argument| argument == "--from").map(|at| run[at + 1].clone());
        assert!(from.is_some_and(|from| from.ends_with("/release")) && !run.contains(&"--manifest".to_owned()));
        fs::remove_dir_all(directory.path().join("out")).unwrap();
    }
}

#[test]
fn a_release_is_fetched_from_a_url() {
    let directory = tempfile::tempdir().unwrap();
    let release = of_stand_in(directory.path(), 0, "");
    needs("curl", "curl");
    needs("python3", "python3");
    let mut server = Command::new("python3");
    server.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0", "--directory"]).arg(&release);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut line).unwrap();
    let port = line.split_once("port ").unwrap().1.split(' ').next().unwrap();
    let url = PathBuf::from(format!("http://127.0.0.1:{port}/"));
    let fetched = action(directory.path(), &url, &[]);
    fs::remove_dir_all(directory.path().join("out")).unwrap();
    fs::remove_file(release.join("testbed-quick.tar.xz")).unwrap();
    let missing = action(directory.path(), &url, &[]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(fetched.code, Some(0), "{}\n{}", fetched.stdout, fetched.stderr);
    missing.refused(directory.path(), "cannot fetch testbed-quick.tar.xz");
}

#[test]
fn what_is_not_the_release_is_refused_and_nothing_of_it_is_kept() {
    let original = tempfile::tempdir().unwrap();
    let release = of_stand_in(original.path(), 0, "");
    let read = |name: &str| fs::read(release.join(name)).unwrap();
    let sums = String::from_utf8(read("SHA256SUMS")).unwrap();
    let first = sums.lines().find(|line| line.ends_with("-linux")).unwrap();
    let of_sums = |text: String| ("SHA256SUMS", text.into_bytes());
    let name = program();
    let cases = [
        (
            "a changed program",
            (name.as_str(), [read(&name), b"\n".to_vec()].concat()),
            "is not the file that SHA256SUMS names",
        ),
        ("a damaged testbed", ("testbed-quick.tar.xz", b"x".to_vec()), "testbed-quick.tar.xz is not the file"),
        ("no sum", of_sums(sums.replace(first, "")), "has a line that is no sum"),
        ("no program", of_sums(sums.replace(&format!("{first}\n"), "")), "SHA256SUMS does not name it"),
        ("a path", of_sums(sums.replace(&name, &format!("../{name}"))), "has a line that is no sum"),
        ("two sums", of_sums(format!("{sums}{first}\n")), "two times"),
        ("another sum", of_sums(sums.replace(&first[..64], &"0".repeat(64))), "is not the file that SHA256SUMS names"),
        ("no sums", of_sums(String::new()), "SHA256SUMS does not name it"),
    ];
    for (what, (file, content), message) in cases {
        let before = read(file);
        fs::write(release.join(file), content).unwrap();
        action(original.path(), &release, &[]).refused(original.path(), message);
        assert!(!original.path().join("arguments").exists(), "{what}: the program was executed");
        fs::write(release.join(file), before).unwrap();
    }
    // Whoever can write the release can also change the sums, but not those in a workflow.
    let (right, wrong) = (crate::common::release::sha256(&release.join("SHA256SUMS")), "0".repeat(64));
    action(original.path(), &release, &[("SUMS", &wrong)]).refused(original.path(), "not that of the input `sums`");
    let Ended { code, stdout, .. } = action(original.path(), &release, &[("SUMS", &right)]);
    assert_eq!(code, Some(0), "{stdout}");
}

#[test]
fn wrong_inputs_are_refused_before_anything_is_fetched() {
    let directory = tempfile::tempdir().unwrap();
    let release = of_stand_in(directory.path(), 0, "");
    for (name, value) in [
        ("VERSION", ""),
        ("VERSION", "../0.1.0"),
        ("FROM", ""),
        ("SUMS", "abc"),
        ("TESTBED", "../quick"),
        ("STUDY", "--help"),
        ("OUTPUT", "a\nb"),
    ] {
        let ended = action(directory.path(), &release, &[(name, value)]);
        assert_eq!(ended.code, Some(2), "{name}={value}: {}", ended.stdout);
        assert!(ended.stdout.starts_with("::error title=bpfassay::the ") && ended.stdout.lines().count() == 1);
    }
    // Foreign files are not overwritten.
    fs::create_dir(directory.path().join("out")).unwrap();
    fs::write(directory.path().join("out/mine"), "").unwrap();
    let ended = action(directory.path(), &release, &[]);
    assert!(ended.code == Some(2) && ended.stdout.contains("is not empty"), "{}", ended.stdout);
    assert!(!directory.path().join("arguments").exists());
}

#[test]
fn a_run_without_results_is_an_error_and_its_exit_code_stays() {
    let directory = tempfile::tempdir().unwrap();
    let release = of_stand_in(directory.path(), 3, "no QEMU\n");
    let Ended { code, stdout, .. } = action(directory.path(), &release, &[]);
    assert!(code == Some(3) && stdout.contains("no QEMU"), "{stdout}");
    assert!(stdout.ends_with("::bpfassay run ended with exit code 3 and has no results: see its messages above\n"));
}

#[test]
fn whoever_is_not_root_has_the_host_s_packages_installed_by_sudo() {
    let directory = tempfile::tempdir().unwrap();
    let release = of_stand_in(directory.path(), 0, "");
    let log = directory.path().join("sudo-log");
    let bin = directory.path().join("bin");
    fs::create_dir(&bin).unwrap();
    for (name, script) in
        [("id", "echo 1000".to_owned()), ("sudo", format!("printf '%s\\n' \"$*\" >>{}", log.display()))]
    {
        fs::write(bin.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let Ended { code, stdout, .. } = action(directory.path(), &release, &[]);
    assert_eq!(code, Some(0), "{stdout}");
    let log = fs::read_to_string(log).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines.len() == 2 && lines[1].ends_with("-linux --yes doctor --install"), "{log}");
}

/// Returns the keys of the block of YAML below the line `head`, with the indent `indent`.
fn keys(text: &str, head: &str, indent: &str) -> Vec<String> {
    let (_, block) = text.split_once(&format!("\n{head}:\n")).unwrap();
    let block = block.lines().take_while(|line| line.starts_with(indent) || line.is_empty());
    let lines = block.filter_map(|line| line.strip_prefix(indent)).filter(|line| !line.starts_with(' '));
    lines.filter_map(|line| line.split_once(':')).map(|(key, _)| key.to_owned()).collect()
}

#[test]
fn the_action_hands_every_input_to_the_script_and_the_page_describes_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let [action, script, page] =
        ["action.yml", "ci/action", "docs/how-to/ci.md"].map(|file| fs::read_to_string(root.join(file)).unwrap());
    let inputs = keys(&action, "inputs", "  ");
    assert!(inputs.len() > 8, "{inputs:?}");
    let variable = |input: &String| format!("INPUT_{}", input.to_uppercase());
    let passed = keys(&action, "      env", "        ");
    assert_eq!(passed.iter().filter(|name| name.starts_with("INPUT_")).count(), inputs.len());
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    for input in &inputs {
        assert!(passed.contains(&variable(input)), "{input} is not handed on");
        assert!(script.contains(&format!("#   {}", variable(input))), "ci/action does not describe {input}");
        assert!(script.contains(&format!("${{{}", variable(input))), "ci/action does not read {input}");
        assert!(rows.iter().any(|row| row.split(" | ").next().unwrap().contains(&format!("`{input}`"))), "{input}");
    }
    // No value of an input is part of a command that a shell reads.
    let (_, steps) = action.split_once("  steps:\n").unwrap();
    let runs: Vec<&str> = steps.lines().filter_map(|line| line.trim().strip_prefix("run: ")).collect();
    assert_eq!(runs, ["'\"$ACTION/ci/action\"'"]);
    // The action has the inputs of the page's example.
    let (_, example) = page.split_once("with: { version: ").unwrap();
    let given = format!("version: {}", example.split_once(" }").unwrap().0);
    for (name, _) in given.split(", ").map(|pair| pair.split_once(": ").unwrap()) {
        assert!(inputs.iter().any(|input| input == name), "{name} is no input");
    }
    let workflow = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(workflow.lines().count() <= 11, "{workflow}");
}

#[test]
fn the_template_for_nix_has_both_systems_and_a_job_for_each_check() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    assert!(read("nix/template/flake.nix").contains("genAttrs [ \"x86_64-linux\" \"aarch64-linux\" ]"));
    let [ours, template] = ["ci/forge.yml", "nix/template/.github/workflows/check.yml"].map(read);
    // The template equals this repository's own checks, except for the reports, whose script is in
    // a checkout of bpfassay.
    let (_, ours) = ours.split_once("\njobs:\n").unwrap();
    let (ours, _) = ours.split_once("      - if: always()\n").unwrap();
    let (_, jobs) = template.split_once("\njobs:\n").unwrap();
    assert_eq!(jobs, ours.replace(", 'Cargo.lock'", ""));
    for part in ["fromJSON(needs.list.outputs.checks)", "[ubuntu-latest, ubuntu-24.04-arm]", "cache-nix-action"] {
        assert!(jobs.contains(part), "{part}");
    }
}

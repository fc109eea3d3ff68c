// SPDX-License-Identifier: MIT OR Apache-2.0
//! Foreign text in studies, manifests, results and messages is shown on a terminal, which does not
//! obey it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Output,
};

use bpfassay_protocol::{
    frame,
    message::{GuestFacts, GuestMessage},
};
use serde_json::{Value, json};

use crate::common::{bpfassay, needs, printed};

/// A title, a cleared screen, a link, the clipboard, a question that a terminal answers by typing,
/// C1, and reversed text.
const HOSTILE: &str = "\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}]8;;http://evil.example/\u{1b}\\link\u{1b}]8;;\u{1b}\\\
    \u{1b}]52;c;ZXZpbA==\u{7}\u{1b}[c\u{9b}31m\u{202e}\r\u{1b}[31m";

/// The beginning of its printed form.
const SHOWN: &str = r"\x1b]0;title\x07\x1b[2J";

fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}')
}

/// Returns the text of `output`, and checks that it has no control characters.
fn harmless(output: &Output) -> String {
    for stream in [&output.stdout, &output.stderr] {
        let text = str::from_utf8(stream).unwrap();
        if let Some(line) = text.lines().find(|line| line.contains(is_forbidden)) {
            panic!("{line:?}");
        }
    }
    printed(output)
}

/// The smallest study, of kernels 6.12.
const STUDY: &str = r#"
schema = 1
name = "small"
description = "For tests."
probes = ["none"]
[[targets]]
arch = "aarch64"
kernels = "6.12"
[[file_systems]]
type = "tmpfs"
[[workloads]]
name = "w"
options = "-w -r"
[design]
replicates = 1
seed = 1
"#;

/// Runs the command in `directory`; the output must be harmless and contain [`SHOWN`].
fn shows(directory: &Path, arguments: &[&str], code: i32) -> String {
    let output = bpfassay(directory).args(arguments).output().unwrap();
    let printed = harmless(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
    assert!(printed.contains(SHOWN), "{arguments:?}: {printed}");
    printed
}

fn toml(text: &str) -> String {
    let escaped: String = text.chars().map(|c| format!("\\u{:04X}", u32::from(c))).collect();
    format!("\"{escaped}\"")
}

#[test]
fn text_of_a_study_is_shown_with_its_control_characters_escaped() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("described.toml", &STUDY.replace("\"For tests.\"", &toml(HOSTILE)));
    shows(directory.path(), &["plan", "./described.toml"], 0);
    // An error quotes what it found.
    write("key.toml", &format!("{} = 1\n{STUDY}", toml(HOSTILE)));
    shows(directory.path(), &["plan", "./key.toml"], 2);
    // JSON has its own escapes with the same meaning.
    let output = bpfassay(directory.path()).args(["plan", "./described.toml", "--json"]).output().unwrap();
    harmless(&output);
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["study"]["description"], HOSTILE);
}

#[test]
fn names_of_files_and_arguments_are_shown_with_their_control_characters_escaped() {
    let directory = tempfile::tempdir().unwrap();
    shows(directory.path(), &["plan", &format!("./{HOSTILE}.toml").replace("evil.example/", "")], 2);
    for arguments in [&[HOSTILE][..], &["plan", "--arch", HOSTILE], &["plan", "--nothing", HOSTILE]] {
        let output = bpfassay(directory.path()).args(arguments).output().unwrap();
        let printed = harmless(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {printed}");
        assert!(printed.contains("error:"), "{printed}");
    }
    let name = format!("{SHOWN}\n").replace(r"\x1b", "\u{1b}").replace(r"\x07", "\u{7}");
    shows(directory.path(), &["generate", "man", &name], 0);
}

#[test]
fn a_manifest_s_names_are_shown_and_not_obeyed() {
    let work = tempfile::tempdir().unwrap();
    fs::create_dir(work.path().join("programs")).unwrap();
    for program in ["bpfassay-guest", "bpfassay-tracer", "bpfassay-ior"] {
        fs::write(work.path().join("programs").join(program), program).unwrap();
    }
    let mut image = vec![0; 0x38];
    image.extend(b"ARM\x64\0\0\0\0Linux version 6.12.1 (nobody)\0");
    fs::write(work.path().join("Image"), image).unwrap();
    let spec = r#"{"format": 1, "provider": "nix", "programs": {"aarch64": "programs"},
        "targets": [{"arch": "aarch64", "name": "6.12", "version": "6.12.1", "image": "Image"}]}"#;
    let at = |name: &str, text: &str| fs::write(work.path().join(name), text).unwrap();
    at("spec.json", spec);
    let output = bpfassay(work.path()).args(["testbed", "compose", "spec.json", "--output", "made"]).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));

    let file = work.path().join("made/manifest.json");
    let whole: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let changed = |place: &str| {
        let mut manifest = whole.clone();
        *manifest.pointer_mut(place).unwrap() = HOSTILE.into();
        fs::write(&file, manifest.to_string()).unwrap();
    };
    changed("/targets/0/name");
    shows(work.path(), &["testbed", "check", "made/manifest.json"], 0);
    // A release becomes part of paths.
    changed("/targets/0/kernel/release");
    let output = bpfassay(work.path()).args(["testbed", "check", "made/manifest.json"]).output().unwrap();
    let printed = harmless(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("is no kernel release"), "{printed}");
    // Names of kernels become file names.
    let mut manifest = whole;
    manifest["targets"][0]["name"] = "6.12./../../../evil".into();
    fs::write(&file, manifest.to_string()).unwrap();
    at("pattern.toml", &STUDY.replace("6.12", "6.12.*"));
    let output =
        bpfassay(work.path()).args(["plan", "./pattern.toml", "--manifest", "made/manifest.json"]).output().unwrap();
    let printed = harmless(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("cannot be a kernel name"), "{printed}");
}

/// Creates results whose study has a hostile name.
fn hostile_results() -> Value {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/quick/results.json.xz");
    needs("xz", "xz-utils");
    let output = std::process::Command::new("xz").args(["-dc"]).arg(packed).output().unwrap();
    assert!(output.status.success(), "xz: {}", String::from_utf8_lossy(&output.stderr));
    let mut results: Value = serde_json::from_slice(&output.stdout).unwrap();
    results["plan"]["study"]["name"] = format!("=1+1{HOSTILE}").into();
    results["notes"] = vec![HOSTILE].into();
    for cell in results["cells"].as_array_mut().unwrap() {
        cell["case"] = format!("={HOSTILE}").into();
        let line = json!({ "file": 0, "line": 1, "text": HOSTILE, "executions": 1 });
        let lines = json!({ "value": { "files": [HOSTILE], "lines": [line] } });
        cell["code_coverage"] = json!({ "value": { "runs": 1, "programs": [{ "program": HOSTILE, "lines": lines }] } });
    }
    results
}

/// Writes `text` as the results in `directory`, with the right digest: whoever passes results on
/// can seal them.
fn sealed(directory: &Path, text: &str) {
    let path = directory.join("results.json");
    fs::write(&path, text).unwrap();
    // The script computes the digest.
    needs("jq", "jq");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/records/seal-results");
    assert!(std::process::Command::new(script).arg(path).status().unwrap().success());
}

#[test]
fn results_of_others_are_shown_and_not_obeyed() {
    let directory = tempfile::tempdir().unwrap();
    sealed(directory.path(), &serde_json::to_string_pretty(&hostile_results()).unwrap());
    for format in
        ["text", "markdown", "github", "junit", "ktap", "badge", "openmetrics", "csv", "collapsed", "lcov", "html"]
    {
        let output =
            bpfassay(directory.path()).args(["report", ".", "--format", format, "--output", "-"]).output().unwrap();
        let printed = harmless(&output);
        assert!(output.status.success(), "{format}: {printed}");
        // Markdown escapes brackets, and a semicolon separates frames in collapsed stacks.
        let shown = ["x1b]0;title", "x1b\\]0;title", "x1b]0:title"];
        assert!(shown.iter().any(|shown| printed.contains(shown)), "{format}: {printed}");
    }
    for arguments in
        [&["compare", ".", "."][..], &["compare", ".", ".", "--format", "json"], &["trend", ".", "--format", "json"]]
    {
        let output = bpfassay(directory.path()).args(arguments).output().unwrap();
        harmless(&output);
    }
    // Errors quote what they found.
    let version = bpfassay_results::RESULTS_VERSION;
    sealed(directory.path(), &format!("{{\n  \"version\": {version}, {}: 1\n}}\n", Value::from(HOSTILE)));
    shows(directory.path(), &["report", "."], 2);
}

#[test]
fn code_coverage_has_a_page_beside_the_report() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/quick/results.json.xz");
    fs::copy(packed, at("results.json.xz")).unwrap();
    let report = |arguments: &[&str]| {
        let output = bpfassay(directory.path()).args(["report", "."]).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    // Nothing is written next to standard output, and its page has no link.
    let (code, page) = report(&["--output", "-"]);
    assert_eq!((code, fs::read_dir(directory.path()).unwrap().count()), (Some(0), 1));
    assert!(page.starts_with("<!doctype html>") && !page.contains("code-coverage.html"), "{}", page.len());
    for (arguments, file, beside) in [
        (&[][..], "report.html", "code-coverage.html"),
        (&["--output", "a #1.html"], "a #1.html", "a__1-code-coverage.html"),
    ] {
        assert_eq!(report(arguments).0, Some(0));
        assert!(fs::read_to_string(at(file)).unwrap().contains(&format!("<a href=\"{beside}\">")), "{file}");
        assert!(fs::read_to_string(at(beside)).unwrap().contains(" lines ran"), "{beside}");
    }
    // The directory can belong to another user: nothing is written through a link in it.
    fs::write(at("precious"), "kept").unwrap();
    fs::remove_file(at("code-coverage.html")).unwrap();
    std::os::unix::fs::symlink(at("precious"), at("code-coverage.html")).unwrap();
    assert_eq!(report(&[]).0, Some(3));
    assert_eq!(fs::read_to_string(at("precious")).unwrap(), "kept");
}

#[test]
fn a_profile_goes_to_a_file_and_never_to_standard_output() {
    let directory = tempfile::tempdir().unwrap();
    sealed(directory.path(), &serde_json::to_string_pretty(&hostile_results()).unwrap());
    let report = |arguments: &[&str]| {
        let arguments = ["report", ".", "--format", "pprof"].iter().chain(arguments);
        bpfassay(directory.path()).args(arguments).output().unwrap()
    };
    let refused = report(&["--output", "-"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stdout.is_empty() && harmless(&refused).contains("the format pprof is not text"));
    for (arguments, file) in [(&[][..], "direct.pb.gz"), (&["--output", "named"], "named")] {
        let written = report(arguments);
        assert!(written.status.success() && harmless(&written).contains(file), "{written:?}");
        // The files begin like gzip.
        assert!(fs::read(directory.path().join(file)).unwrap().starts_with(&[0x1f, 0x8b]), "{file}");
    }
}

#[test]
fn annotations_go_to_standard_output_and_the_summary_where_the_workflow_wants_it() {
    let directory = tempfile::tempdir().unwrap();
    sealed(directory.path(), &serde_json::to_string_pretty(&hostile_results()).unwrap());
    let report = |arguments: &[&str], file: &str| {
        let mut command = bpfassay(directory.path());
        command.args(["report", ".", "--format", "github"]).args(arguments).env("GITHUB_STEP_SUMMARY", file);
        let output = command.output().unwrap();
        harmless(&output);
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let read = |file: &str| fs::read_to_string(directory.path().join(file)).unwrap();
    let is_command = |line: &str| line.starts_with("::notice title=bpfassay%2C study =1+1");

    // Output of other commands of the step stays.
    fs::write(directory.path().join("step"), "before\n").unwrap();
    let (code, stdout, _) = report(&[], "step");
    assert!(code == Some(0) && stdout.lines().all(is_command) && stdout.lines().count() == 1, "{stdout}");
    let summary = read("step").strip_prefix("before\n").unwrap().to_owned();
    assert!(summary.starts_with("### bpfassay: "), "{summary}");

    // If there is no file to append to, both parts follow each other. A given file gets the
    // summary.
    for (arguments, variable) in [(&[][..], ""), (&["--output", "-"][..], "step")] {
        let (code, both, _) = report(arguments, variable);
        assert_eq!((code, both), (Some(0), format!("{stdout}{summary}")));
    }
    let (code, printed, _) = report(&["--output", "comment.md"], "step");
    assert_eq!((code, printed), (Some(0), format!("{stdout}comment.md\n")));
    assert_eq!(read("comment.md"), summary);
    assert_eq!(read("step"), format!("before\n{summary}"), "a named file, and the one of the step");

    // GitHub shows nothing of a summary that is too long.
    fs::write(directory.path().join("full"), "x".repeat(1 << 20)).unwrap();
    let (code, printed, error) = report(&[], "full");
    assert_eq!((code, printed), (Some(3), stdout), "annotations come all the same");
    assert!(error.contains("write the report in a step of its own") && read("full").len() == 1 << 20, "{error}");
}

/// Runs `bpfassay here` with an agent that writes `messages`.
fn here(messages: &[GuestMessage], arguments: &[&str]) -> (tempfile::TempDir, Output) {
    let directory = tempfile::tempdir().unwrap();
    let frames: Vec<u8> = messages.iter().flat_map(|message| frame::encode(message).unwrap()).collect();
    fs::write(directory.path().join("frames"), frames).unwrap();
    for (program, script) in [
        ("bpfassay-guest", format!("#!/bin/sh\n/bin/cat {}/frames\n", directory.path().display())),
        ("bpfassay-tracer", "#!/bin/sh\n".to_owned()),
        ("bpfassay-ior", "#!/bin/sh\n".to_owned()),
    ] {
        let path = directory.path().join(program);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = bpfassay(directory.path())
        .env("PATH", directory.path())
        .args(["here", "quick", "--mount", "/proc", "--output", "out"])
        .args(arguments)
        .output()
        .unwrap();
    (directory, output)
}

fn hostile_agent() -> Vec<GuestMessage> {
    let facts = GuestFacts { kernel_release: HOSTILE.to_owned(), ..GuestFacts::default() };
    let log = || GuestMessage::Log { text: format!("{HOSTILE}\n[   1 s] forged: measured") };
    let mut messages = vec![GuestMessage::Ready(Box::new(facts))];
    messages.extend(std::iter::repeat_with(log).take(1000));
    messages.push(GuestMessage::Failed { message: format!("{HOSTILE}\nforged") });
    messages
}

#[test]
fn messages_of_an_agent_are_shown_bounded_and_with_their_control_characters_escaped() {
    for verbose in [&[][..], &["-v"]] {
        let (_directory, output) = here(&hostile_agent(), verbose);
        let printed = harmless(&output);
        // The agent failed before the first run, which is no fault of a tool.
        assert_eq!(output.status.code(), Some(3), "{printed}");
        assert!(printed.contains(SHOWN), "{printed}");
        assert!(printed.lines().all(|line| !line.starts_with("forged")), "{printed}");
        if verbose.is_empty() {
            assert_eq!(
                printed.matches("[   1 s] forged").count(),
                printed.matches("more lines of this guest").count() * 20,
                "{printed}"
            );
        }
    }
}

#[test]
fn events_are_json_in_which_a_terminal_obeys_nothing() {
    let (_directory, output) = here(&hostile_agent(), &["--message-format", "json"]);
    harmless(&output);
    let events: Vec<Value> =
        str::from_utf8(&output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let logs: Vec<&Value> = events.iter().filter(|event| event["event"] == "log").collect();
    assert!(logs.len() >= 1000, "{}", logs.len());
    assert_eq!(logs[0]["text"], format!("{HOSTILE}\n[   1 s] forged: measured"));
}

#[test]
fn shortage_of_the_host_is_reported_as_such() {
    let directory = tempfile::tempdir().unwrap();
    // Descriptors 0 to 2 are open, and the limit allows few more: the loader of programs needs one.
    let mut wanting = 0;
    for files in 4..12 {
        for arguments in ["plan quick", "run --resume .", "fetch --offline --cache cache"] {
            let command = format!("ulimit -n {files}; exec {} {arguments}", env!("CARGO_BIN_EXE_bpfassay"));
            let output = std::process::Command::new("sh")
                .args(["-c", &command])
                .current_dir(directory.path())
                .env_remove("RUST_LOG")
                .output()
                .unwrap();
            let printed = printed(&output);
            let is_told = printed.contains("ulimit -n");
            assert!(output.status.code() == Some(3) || !is_told, "{files}, {arguments}: {printed}");
            assert!(!matches!(output.status.code(), None | Some(1 | 101)), "{files}, {arguments}: {printed}");
            wanting += u32::from(is_told);
        }
    }
    assert!(wanting >= 3, "nothing was wanted");
    // Readers would miss events that cannot be written.
    let (directory, _) = here(&[], &[]);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = bpfassay(directory.path())
        .env("PATH", directory.path())
        .args(["here", "quick", "--mount", "/proc", "--output", "other", "--message-format", "json"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", printed(&output));
    assert!(printed(&output).contains("cannot write to standard output"), "{}", printed(&output));
}

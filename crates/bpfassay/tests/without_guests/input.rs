// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invalid input files: pipes, devices, endless files, links out of a tool's directory. Each is
//! refused at once, with its name and the exit code of wrong input.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it skips")]

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::common::{printed, spec};

/// Returns the command in `directory`, which is killed after 20 s.
fn command(directory: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("20").arg(env!("CARGO_BIN_EXE_bpfassay")).current_dir(directory);
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Checks that `command` exits with `code` and prints `part`.
fn ends(command: &mut Command, code: i32, part: &str) {
    let output = command.output().unwrap();
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {printed}");
    assert!(printed.replace('\n', " ").contains(part), "{command:?}: {printed}");
}

/// Checks that the command in `directory` exits with `code` within 20 s and prints `part`.
fn exits(directory: &Path, arguments: &[&str], code: i32, part: &str) {
    ends(command(directory).args(arguments), code, part);
}

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// Objects are larger than tool files can be.
#[test]
fn an_object_in_place_of_a_tool_file_is_named_as_such() {
    let work = tempfile::tempdir().unwrap();
    let object = fs::File::create(work.path().join("my.bpf.o")).unwrap();
    object.set_len(2 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&object, b"\x7fELF\x02\x01\x01", 0).unwrap();
    for arguments in [
        &["plan", "quick", "--tool", "my.bpf.o"][..],
        &["run", "quick", "--tool", "my.bpf.o"],
        &["check", "my.bpf.o"],
        &["here", "--mount", "/proc", "--tool", "my.bpf.o"],
        &["testbed", "fetch", "--tool", "my.bpf.o"],
    ] {
        exits(work.path(), arguments, 2, "`bpfassay tool init my.bpf.o`");
    }
}

#[test]
fn pipes_devices_and_files_without_end_are_no_input() {
    let work = tempfile::tempdir().unwrap();
    pipe(&work.path().join("pipe.toml"));
    fs::File::create(work.path().join("endless.toml")).unwrap().set_len(1 << 42).unwrap();
    for (file, part) in [
        ("./pipe.toml", "it is a named pipe and no regular file"),
        ("/dev/zero", "it is a device and no regular file"),
        ("./endless.toml", "bytes, which is the limit for such a file"),
    ] {
        let output = "made";
        for arguments in [
            &["plan", file][..],
            &["plan", "quick", "--tool", file],
            &["plan", "quick", "--qemu", "--manifest", file, "--cache", "cache", "--offline"],
            &["testbed", "check", file],
            &["testbed", "check", "--spec", file],
            &["testbed", "compose", file, "--output", output, "--cache", "cache"],
            &["testbed", "pack", file, "--output", output],
        ] {
            exits(work.path(), arguments, 2, part);
        }
    }
}

/// Creates a testbed of one guest for aarch64, whose files have only names as content.
fn testbed(work: &Path) {
    spec(work);
    exits(work, &["testbed", "compose", "spec.json", "--output", "made", "--cache", "cache"], 0, "Linux 6.12.1");
    // This replaces QEMU, of which planning needs only the version.
    let program = work.join("qemu-system-aarch64");
    fs::write(&program, "#!/bin/sh\necho QEMU emulator version 7.2.0\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

fn with_tool(work: &Path, source: &str, code: i32, part: &str) {
    let text = format!("schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\n{source}\n");
    fs::write(work.join("tool/tool.toml"), text).unwrap();
    let path = format!("{}:{}", work.display(), env::var("PATH").unwrap());
    let mut command = command(work);
    command.args(["plan", "quick", "--qemu=host", "--offline", "--cache", "cache"]).env("PATH", path);
    command.args(["--manifest", "made/manifest.json", "--available", "--tool", "tool/tool.toml"]);
    ends(&mut command, code, part);
}

#[test]
fn a_wrong_tool_file_is_wrong_input_and_leads_nowhere_else() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    testbed(work);
    fs::create_dir(work.join("tool")).unwrap();
    fs::write(work.join("secret"), "#!/bin/sh\nsecret\n").unwrap();
    fs::write(work.join("tool/script"), "#!/bin/sh\n").unwrap();
    symlink("../secret", work.join("tool/l1")).unwrap();
    symlink("/etc/shadow", work.join("tool/l2")).unwrap();
    symlink("script", work.join("tool/good")).unwrap();
    symlink("..", work.join("tool/up")).unwrap();
    pipe(&work.join("tool/pipe"));
    let script = |path: &str| format!("script = {{ path = '{path}', interpreter = '/bin/sh' }}");
    for path in ["l1", "l2", "up/secret"] {
        with_tool(work, &script(path), 2, "it leads out of the directory tool");
    }
    with_tool(work, &script("pipe"), 2, "it is a named pipe");
    with_tool(work, &script("none"), 2, "cannot read tool/none, which mine names");
    with_tool(work, "object = { path = 'script' }", 2, "is no eBPF object");
    // The object lacks the map of the figures.
    let object = concat!(env!("CARGO_MANIFEST_DIR"), "/../bpfassay-tool/tests/data/counts.bpf.o");
    fs::copy(object, work.join("tool/counts.bpf.o")).unwrap();
    let map = |map: &str, field: &str| {
        format!(
            "object = {{ path = 'counts.bpf.o' }}\n[report]\nmap = {{ map = '{map}' }}\n\
             figures = [{{ value = '{field}', operations = 'read', unit = 'bytes-returned' }}]"
        )
    };
    with_tool(work, &map("counts", "bytes"), 0, "");
    with_tool(work, &map("counts", "byts"), 2, "the map `counts` has no field `byts`");
    with_tool(work, &map("count", "bytes"), 2, "describes no map `count`");
    with_tool(work, "binary = { arch = 'aarch64', path = 'good' }\n[start]\nready = { port = 'x' }", 2, "tool.toml:");
    let made = |work: &Path| fs::read_dir(work.join("cache/objects")).unwrap().count();
    let before = made(work);
    with_tool(work, &script("l1"), 2, "it leads out of the directory");
    assert_eq!(made(work), before, "nothing was packed");
    // A link inside of the directory is followed.
    with_tool(work, &script("good"), 0, "");
    assert!(made(work) > before, "the script was packed");
}

#[test]
fn what_no_guest_could_start_is_refused_before_anything_is_made() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let mut program = b"\x7fELF\x02\x01\x01".to_vec();
    program.resize(64, 0);
    program[18] = 183;
    fs::write(work.join("arm"), &program).unwrap();
    fs::write(work.join("script"), "#!/bin/sh\n").unwrap();
    let binary = |path: &str| format!("binary = {{ arch = 'x86_64', path = '{path}' }}");
    for (source, part) in [
        (binary("none"), "cannot read none, which mine names"),
        (binary("arm"), "arm is a program for aarch64, and the tool file gives it for x86_64"),
        (binary("script"), "script is a script for /bin/sh, which guests do not have"),
        ("object = { path = 'arm' }".to_owned(), "arm is no eBPF object"),
        (
            "guest = { program = '/x' }\n[start]\nneeds = 'dbus'".to_owned(),
            "it needs D-Bus, which no guest has: process 1",
        ),
    ] {
        let text = format!("schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\n{source}\n");
        fs::write(work.join("tool.toml"), text).unwrap();
        for command in ["plan", "run"] {
            exits(work, &[command, "quick", "--offline", "--cache", "cache", "--tool", "tool.toml"], 2, part);
        }
        exits(work, &["check", "tool.toml", "--offline", "--cache", "cache"], 2, part);
        // The study has no guest for the program.
        let code = if source.starts_with("binary") { 0 } else { 2 };
        let others = ["plan", "quick", "--arch", "riscv64", "--tool", "tool.toml"];
        exits(work, &others, code, "");
    }
    assert!(!work.join("cache").exists(), "nothing was made");
}

#[test]
fn an_ior_script_does_not_lead_out_of_the_study() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    fs::create_dir(work.join("study")).unwrap();
    let study = fs::read_to_string(crate::common::study("../crates/bpfassay-study/studies/quick.toml")).unwrap();
    fs::write(work.join("study/mine.toml"), study.replace("quick.ior", "mine.ior")).unwrap();
    fs::write(work.join("mine.ior"), "IOR START\nRUN\nIOR STOP\n").unwrap();
    symlink("../mine.ior", work.join("study/mine.ior")).unwrap();
    exits(work, &["plan", "study/mine.toml"], 2, "it leads out of the directory study");
    fs::remove_file(work.join("study/mine.ior")).unwrap();
    pipe(&work.join("study/mine.ior"));
    exits(work, &["plan", "study/mine.toml"], 2, "it is a named pipe");
}

#[test]
fn a_process_that_may_open_no_more_files_is_failed_by_its_host() {
    let work = tempfile::tempdir().unwrap();
    let command = format!("ulimit -n 4; exec {} plan quick", env!("CARGO_BIN_EXE_bpfassay"));
    let output = Command::new("sh").args(["-c", &command]).current_dir(work.path()).output().unwrap();
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(printed.contains("ulimit -n"), "{printed}");
}

#[test]
fn a_tool_file_is_written_once_and_a_study_takes_it() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let object = concat!(env!("CARGO_MANIFEST_DIR"), "/../bpfassay-tool/tests/data/counts.bpf.o");
    fs::create_dir(work.join("bin")).unwrap();
    fs::create_dir(work.join("elsewhere")).unwrap();
    fs::copy(object, work.join("bin/counts.bpf.o")).unwrap();
    exits(work, &["tool", "init", "bin/counts.bpf.o"], 0, "object = { path = \"bin/counts.bpf.o\" }");
    // The source is not below the current directory.
    exits(&work.join("elsewhere"), &["tool", "init", "../bin/counts.bpf.o"], 0, "object = { path = \"counts.bpf.o\" }");
    exits(work, &["tool", "init", "bin/counts.bpf.o", "--output", "mine.toml"], 0, "");
    let written = fs::read_to_string(work.join("mine.toml")).unwrap();
    assert!(written.contains("object = { path = \"bin/counts.bpf.o\" }"), "{written}");
    exits(work, &["plan", "quick", "--arch", "x86_64", "--tool", "mine.toml"], 0, "_counts");
    exits(work, &["tool", "init", "bin/counts.bpf.o", "--output", "mine.toml"], 2, "nothing is overwritten");
    exits(work, &["tool", "init", "bin/counts.bpf.o", "--output", "no/mine.toml"], 2, "cannot read no");
    assert_eq!(fs::read_to_string(work.join("mine.toml")).unwrap(), written);
    exits(work, &["tool", "init", "none"], 2, "cannot read none");
    exits(work, &["tool", "init", "http://127.0.0.1:1/metrics"], 3, "check that the tool runs here");
    exits(work, &["tool", "init", "mine.toml"], 2, "it is a text of another kind");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers for tests of the command.
#![allow(dead_code, reason = "each program of tests uses its part")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it skips")]

pub(crate) mod release;
pub(crate) mod terminal;
pub(crate) mod wrong_tools;

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

use bpfassay_chaos::fake_qemu;
use serde_json::Value;

/// Returns the command, in the working directory `directory`.
pub(crate) fn bpfassay(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bpfassay"));
    command.current_dir(directory).stdin(Stdio::null());
    // A test must not depend on the developer's environment; with a store, guests would not be
    // booted.
    for name in ["RUST_LOG", "GITHUB_STEP_SUMMARY", "BPFASSAY_STORE"] {
        command.env_remove(name);
    }
    command
}

/// Writes what `testbed compose` needs for a guest whose files have only names as content.
pub(crate) fn spec(directory: &Path) {
    fs::create_dir(directory.join("programs")).unwrap();
    for program in ["bpfassay-guest", "bpfassay-tracer", "bpfassay-ior"] {
        fs::write(directory.join("programs").join(program), program).unwrap();
    }
    // The header of an arm64 Image, and its banner.
    let mut image = vec![0; 0x38];
    image.extend(b"ARM\x64\0\0\0\0Linux version 6.12.1 (nobody)\0");
    fs::write(directory.join("Image"), image).unwrap();
    let text = r#"{"format": 1, "provider": "nix", "programs": {"aarch64": "programs"},
        "targets": [{"arch": "aarch64", "name": "6.12", "version": "6.12.1", "image": "Image"}]}"#;
    fs::write(directory.join("spec.json"), text).unwrap();
}

/// Returns the path of a study of `vm-tests/`.
pub(crate) fn study(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vm-tests").join(name)
}

/// Copies a study of `vm-tests/` for two kernels of x86_64 into `directory`, and changes it to
/// aarch64. These guests boot in half the time, which matters to tests that boot many.
pub(crate) fn on_aarch64(name: &str, directory: &Path) -> PathBuf {
    let text = fs::read_to_string(study(name)).unwrap();
    let of_x86_64 = "arch = \"x86_64\"\nkernels = [\"6.1\", \"6.12\"]";
    assert!(text.contains(of_x86_64), "{text}");
    let copy = directory.join(name);
    fs::write(&copy, text.replace(of_x86_64, "arch = \"aarch64\"\nkernels = [\"6.12\", \"7.2\"]")).unwrap();
    copy
}

/// Returns standard output and standard error, for messages of failing tests.
pub(crate) fn printed(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Whether tests can boot guests; prints a message if not.
pub(crate) fn guests_wanted() -> bool {
    let wanted = env::var("BPFASSAY_VM_TESTS").is_ok_and(|value| value == "required");
    if !wanted {
        println!("skipped: boots guests; set BPFASSAY_VM_TESTS=required (ci/test does)");
    }
    wanted
}

/// Returns the command's output in an empty directory; it must exit with `code`.
pub(crate) fn exits(arguments: &[&str], code: i32) -> String {
    exits_in(tempfile::tempdir().unwrap().path(), arguments, code)
}

/// Returns the command's output in `directory`; it must exit with `code`.
pub(crate) fn exits_in(directory: &Path, arguments: &[&str], code: i32) -> String {
    let output = bpfassay(directory).args(arguments).output().unwrap();
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
    printed
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Fails if this host lacks `program`, of Debian's `package`, which ci/test installs.
pub(crate) fn needs(program: &str, package: &str) {
    assert!(has(program), "there is no {program}: install {package}");
}

/// Whether this host lacks `program`, of Debian's `package`. ci/test installs it, and sets the
/// variable that makes its absence an error.
pub(crate) fn lacks(program: &str, package: &str) -> bool {
    if has(program) {
        return false;
    }
    let required = env::var("BPFASSAY_TEST_PROGRAMS").is_ok_and(|value| value == "required");
    assert!(!required, "there is no {program}: install {package}");
    println!("SKIPPED: there is no {program}: install {package}");
    true
}

/// Returns all sections of the report on the results in `directory`.
pub(crate) fn report(directory: &Path) -> String {
    exits_in(directory, &["report", "--format", "text", "."], 0)
}

pub(crate) fn results(directory: &Path) -> Value {
    serde_json::from_slice(&fs::read(directory.join("results.json")).unwrap()).unwrap()
}

/// Returns the faults that are found of the tool in `cell`.
pub(crate) fn faults(cell: &Value) -> Vec<&Value> {
    let findings = cell["tool_result"]["findings"].as_array().unwrap().iter();
    findings.filter(|finding| finding["status"] == "found").collect()
}

/// Returns the finding `kind` about the tool in `cell`, whether it is found or not.
pub(crate) fn finding<'a>(cell: &'a Value, kind: &str) -> &'a Value {
    let findings = cell["tool_result"]["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["kind"] == kind).unwrap()
}

/// Measures tools: runs the command without the plugin in `directory`, into `output`. It must exit
/// with `code`. Returns the cells with tools.
pub(crate) fn tool_cells(directory: &Path, output: &str, arguments: &[&str], code: i32) -> Vec<Value> {
    let programs = tempfile::tempdir().unwrap();
    let mut command = bpfassay(directory);
    command.args(arguments).args(["--yes", "--output", output]).env("PATH", without_plugins(programs.path()));
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(code), "{}", printed(&done));
    let results = results(&directory.join(output));
    results["cells"].as_array().unwrap().iter().filter(|cell| cell["tool"].is_string()).cloned().collect()
}

/// Runs a study of vm-tests/ into `out` and returns its results.
pub(crate) fn run(name: &str, code: i32) -> (tempfile::TempDir, Value) {
    run_with(name, &[], code)
}

/// Runs a study with further arguments.
pub(crate) fn run_with(name: &str, arguments: &[&str], code: i32) -> (tempfile::TempDir, Value) {
    let directory = tempfile::tempdir().unwrap();
    let results = run_by(bpfassay(directory.path()), &directory, name, arguments, code);
    (directory, results)
}

/// Runs a study in guests whose instructions no plugin counts.
pub(crate) fn run_uncounted(name: &str, code: i32) -> (tempfile::TempDir, Value) {
    let directory = tempfile::tempdir().unwrap();
    let results = run_by(uncounted(directory.path()), &directory, name, &[], code);
    (directory, results)
}

fn run_by(mut command: Command, directory: &tempfile::TempDir, name: &str, arguments: &[&str], code: i32) -> Value {
    let output =
        command.arg("run").arg(study(name)).args(["--yes", "--output", "out"]).args(arguments).output().unwrap();
    let printed = printed(&output);
    println!("{printed}");
    assert_eq!(output.status.code(), Some(code), "{printed}");
    results(&directory.path().join("out"))
}

/// Returns the command with QEMUs that load no plugin, for tests that do not need it.
pub(crate) fn uncounted(directory: &Path) -> Command {
    let programs = directory.join("without-plugins");
    fs::create_dir_all(&programs).unwrap();
    // QEMU runs as a separate user.
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = bpfassay(directory);
    command.env("PATH", without_plugins(&programs));
    command
}

/// Creates programs in `directory` that replace QEMU and load no plugin, and returns a `PATH` with
/// them. Under the instruction clock a boot then takes a fifth less CPU time, and the guest is the
/// same (`direct.rs`).
pub(crate) fn without_plugins(directory: &Path) -> String {
    for arch in ["x86_64", "aarch64", "riscv64"] {
        stand_in_for_qemu(directory, arch, "*-plugin*) echo 'TCG plugin support not enabled' >&2; exit 1");
    }
    format!("{}:{}", directory.display(), env::var("PATH").unwrap())
}

/// Creates a program in `directory` that starts the QEMU that the command would choose for guests
/// of `arch`. It does something else if its arguments match `unless`, a clause of `case` in a
/// shell.
pub(crate) fn stand_in_for_qemu(directory: &Path, arch: &str, unless: &str) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    let qemu = fake_qemu::program(arch.parse().unwrap(), directory).unwrap();
    let script = format!("#!/bin/sh\ncase \" $* \" in {unless};; esac\nexec '{}' \"$@\"\n", qemu.display());
    let program = directory.join(format!("qemu-system-{arch}"));
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Does `work` while all processors of the host are busy.
pub(crate) fn under_load<T>(work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        outcome.unwrap()
    })
}

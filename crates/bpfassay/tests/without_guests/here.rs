// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay here` on this machine's own kernel, as far as it permits: on real file systems, with
//! the tracer and with a tool. Each test has separate mounts and a separate `/run` in a mount
//! namespace, and a separate parent cgroup, where leftovers would show.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it skips")]

mod stand_in;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::common::{bpfassay, lacks, printed, report, results};

/// Two phases of 4 MiB.
const SCRIPT: &str = "IOR START\n    api=POSIX\n    blockSize=4m\n    transferSize=64k\n    writeFile=1\n    readFile=1\nRUN\nIOR STOP\n";

/// Creates a study of these probes and this workload.
fn study(probes: &str, workload: &str) -> String {
    format!(
        "schema = 1\nname = 'own'\ndescription = 'x'\nprobes = [{probes}]\n[[targets]]\narch = ['x86_64', 'aarch64', 'riscv64']\n\
         kernels = ['6.12']\n[[file_systems]]\ntype = 'nfs'\n[[workloads]]\n{workload}\n[design]\nreplicates = 1\nrounds = 1\n\
         warm_up = 0\nseed = 1\ncontrol = false\n"
    )
}

/// The bundled tracer as an unknown tool: an exporter. It counts by a probe that does not need what
/// this machine's kernel was built without.
const TOOL: &str = r#"schema = 1
[tool]
name = "exporter"
description = "the tracer as an exporter"
[source]
guest = { program = "/bpfassay/tracer" }
[start]
arguments = ["--probe", "raw-tracepoint", "--listen", "127.0.0.1:PORT"]
ready = { line = '"type":"ready"' }
[report]
openmetrics = { port = PORT }
whose = "mount"
only_files = true
figures = [
  { value = "bpfassay_bytes_total", where = { operation = "read" }, operations = "read", unit = "bytes-returned" },
  { value = "bpfassay_bytes_total", where = { operation = "write" }, operations = "write", unit = "bytes-returned" },
  { value = "bpfassay_calls_total", where = { operation = "read" }, operations = "read", unit = "calls" },
  { value = "bpfassay_calls_total", where = { operation = "write" }, operations = "write", unit = "calls" },
]
"#;

/// The beginning of every script; `$stage` is the directory of the test. The machine's page cache,
/// which others use, too, is left alone. A script calls the function `here` with its options, in
/// the cgroup `$cgroup`. It ends with `left`, which also ends a FUSE server.
const PROLOGUE: &str = r#"set -eu
mount -t tmpfs -o mode=755 tmpfs /run
mount --bind "$stage/drop_caches" /proc/sys/vm/drop_caches
[ -e /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing || true
mkdir -p "$stage/hierarchy" "$stage/mnt"
mount -t cgroup2 cgroup2 "$stage/hierarchy"
cgroup="$stage/hierarchy/bpfassay-test-$$"
mkdir "$cgroup"
here() {
  rm -rf "$stage/out"
  (sh -c 'echo $PPID' >"$cgroup/cgroup.procs"; exec bpfassay here "$stage/study.toml" --mount "$stage/mnt" --output "$stage/out" "$@" >"$stage/printed" 2>&1)
}
# What is there before, and has to be there after.
state() {
  sed 's/^[0-9]* [0-9]* //' /proc/self/mountinfo | sort
  find "$cgroup" -mindepth 1 -type d
  ls -A "$stage/mnt"
  ls -A /run/bpfassay-here 2>/dev/null || true
  pidof bpfassay-guest bpfassay-tracer bpfassay-ior | tr ' ' '\n' | while read pid; do
    [ "$(readlink /proc/$pid/ns/mnt)" != "$(readlink /proc/self/ns/mnt)" ] || echo "process $pid"
  done
}
left() { state >"$stage/after"; umount "$stage/mnt"; find "$cgroup" -depth -type d -exec rmdir {} \; ; }
"#;

/// The directory of a test.
struct Stage(tempfile::TempDir);

impl Stage {
    /// Creates a stage with this study, and with the tool at this port. `None`, with a message, if
    /// such tests cannot run.
    fn new(study: &str, port: u16) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: needs root, to mount file systems in a namespace of its own and to load eBPF programs");
            return None;
        }
        let programs = Self::programs();
        let missing = ["bpfassay-guest", "bpfassay-tracer", "bpfassay-ior"].map(|name| programs.join(name));
        if let Some(missing) = missing.iter().find(|path| !path.exists()) {
            let wanted = env::var("BPFASSAY_VM_TESTS").is_ok_and(|value| value == "required");
            assert!(!wanted, "there is no {}: build the whole workspace", missing.display());
            println!("SKIPPED: there is no {}: build the whole workspace", missing.display());
            return None;
        }
        let stage = Self(tempfile::Builder::new().prefix("bpfassay-test-").tempdir().unwrap());
        let write = |name: &str, text: &str| fs::write(stage.at(name), text).unwrap();
        write("study.toml", study);
        write("small.ior", SCRIPT);
        write("tool.toml", &TOOL.replace("PORT", &port.to_string()));
        write("drop_caches", "");
        Some(stage)
    }

    fn programs() -> PathBuf {
        Path::new(env!("CARGO_BIN_EXE_bpfassay")).parent().unwrap().to_owned()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Executes `script` after [`PROLOGUE`], in a new mount namespace.
    fn run(&self, script: &str) -> Output {
        let path = format!("{}:{}", Self::programs().display(), env::var("PATH").unwrap());
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "bash", "-c"])
            .arg(format!("{PROLOGUE}{script}\n"))
            .env("stage", self.0.path())
            .env("PATH", path);
        command.output().unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    /// Measures on what `mount` mounts at `$stage/mnt`, and returns the results. Checks that
    /// nothing is left behind. A refused probe whose refusal was not expected is a valid outcome
    /// (4), too.
    fn measured(&self, mount: &str, options: &str) -> Value {
        let script = format!(
            "{mount}\nstate >\"$stage/before\"\nstatus=0\nhere {options} || status=$?\necho $status >\"$stage/status\"\nleft"
        );
        let output = self.run(&script);
        assert!(output.status.success(), "{}\n{}", printed(&output), self.read("printed"));
        assert!(["0\n", "4\n"].contains(&self.read("status").as_str()), "{}", self.read("printed"));
        self.nothing_is_left();
        results(&self.at("out"))
    }

    fn nothing_is_left(&self) {
        assert!(!self.read("before").is_empty());
        assert_eq!(self.read("after"), self.read("before"), "{}", self.read("printed"));
    }
}

/// Checks that each probe configuration that this kernel accepts counted every byte and call, and
/// that there is at least one; otherwise prints why not. A refusal must be explained if the kernel
/// was built without what the probe needs.
fn exact(results: &Value, file_system: &str) {
    let cells = results["cells"].as_array().unwrap();
    let mut counted = 0;
    for cell in cells.iter().filter(|cell| cell["probe"] != "none") {
        assert_eq!(cell["file_system"], file_system, "{cell:#}");
        if cell["attach"]["outcome"] != "attached" {
            println!("{} is refused by this kernel: {}", cell["probe"], cell["attach"]["refusal"]["message"]);
            continue;
        }
        for row in cell["accuracy"].as_array().unwrap() {
            for figure in ["byte_error", "call_error"] {
                let errors = &row[figure]["value"];
                assert!(errors["intervals"].as_u64().is_some_and(|n| n > 0), "{cell:#}");
                assert_eq!((&errors["exact"], &errors["not_measured"]), (&errors["intervals"], &0.into()), "{cell:#}");
            }
            // The NFS client has its own counters, and others have none.
            if !file_system.starts_with("nfs") {
                assert_eq!(row["mountstats_error"]["not_measured"], "the mount has no mountstats");
            }
        }
        counted += 1;
    }
    if counted == 0 {
        println!("SKIPPED: this kernel lets no probe of the study attach");
    }
}

/// Checks that the tool was started, counted right, and left nothing; if the kernel refused it,
/// prints why.
fn tool_is_right(results: &Value) {
    let cell = results["cells"].as_array().unwrap().iter().find(|cell| cell["tool"] == "exporter").unwrap();
    if cell["attach"]["outcome"] != "attached" {
        println!("SKIPPED: this kernel refuses the tool: {:#}", cell["attach"]);
        return;
    }
    let findings = cell["tool_result"]["findings"].as_array().unwrap();
    let status = |kind: &str| &findings.iter().find(|found| found["kind"] == kind).unwrap()["status"];
    for kind in
        ["does-not-start", "counts-too-low", "counts-too-high", "counts-go-backwards", "mounts-merged", "left-behind"]
    {
        assert_eq!(status(kind), "clear", "{kind}: {findings:#?}");
    }
}

/// Tests the tracer and a tool on what `mount` mounts, a file system of this type.
fn measured_on(mount: &str, file_system: &str, port: u16) {
    let probes = "'none', 'kretprobe', 'fexit', 'raw-tracepoint'";
    let Some(stage) = Stage::new(&study(probes, "script = 'small.ior'"), port) else { return };
    let results = stage.measured(mount, "--tool \"$stage/tool.toml\"");
    exact(&results, file_system);
    tool_is_right(&results);
    let left_out = results["plan"]["left_out"].to_string();
    assert!(file_system == "nfs4.2" || left_out.contains("file system nfs4.2"), "{left_out}");
}

#[test]
fn the_tracer_and_a_tool_count_exactly_on_ext4_and_leave_nothing() {
    let mount = r#"truncate -s 256M "$stage/image"
mkfs.ext4 -q "$stage/image"
mount -o loop "$stage/image" "$stage/mnt""#;
    measured_on(mount, "ext4", 19_431);
}

#[test]
fn the_tracer_and_a_tool_count_exactly_on_tmpfs_and_leave_nothing() {
    measured_on(r#"mount -t tmpfs tmpfs "$stage/mnt""#, "tmpfs", 19_432);
}

#[test]
fn the_tracer_and_a_tool_count_exactly_on_fuse_and_leave_nothing() {
    if !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: needs /dev/fuse, for a FUSE file system");
        return;
    }
    if lacks("bindfs", "bindfs") {
        return;
    }
    measured_on("mkdir \"$stage/source\"\nbindfs \"$stage/source\" \"$stage/mnt\"", "fuse", 19_433);
}

/// If the kernel does not clear its stack (CONFIG_INIT_STACK_NONE, as on some virtual machines), it
/// leaves the upper half of a system call's number unset for these programs. Debian's kernels clear
/// the stack, so no guest shows this.
#[test]
fn programs_on_single_tracepoints_count_exactly_where_the_kernel_does_not_clear_its_stack() {
    let Some(stage) = Stage::new(&study("'none', 'tracepoint'", "script = 'small.ior'"), 19_440) else { return };
    exact(&stage.measured(r#"mount -t tmpfs tmpfs "$stage/mnt""#, ""), "tmpfs");
}

/// An NFS server needs more than a test can set up on any machine; the NixOS test
/// (vm-tests/nixos.nix) has one.
#[test]
fn the_tracer_and_a_tool_count_exactly_on_nfs_and_leave_nothing() {
    let Ok(mounted) = env::var("BPFASSAY_NFS_MOUNT") else {
        println!("SKIPPED: BPFASSAY_NFS_MOUNT names no mount of NFS 4.2 (with no_root_squash) to measure on");
        return;
    };
    measured_on(&format!("mount --bind '{mounted}' \"$stage/mnt\""), "nfs4.2", 19_434);
}

/// On systems with only version 1 of cgroups, version 2 is mounted nowhere before, during and after
/// runs.
#[test]
fn where_cgroup_v2_is_mounted_nowhere_it_is_mounted_for_the_agent_alone() {
    let Some(stage) = Stage::new(&study("'none', 'raw-tracepoint'", "script = 'small.ior'"), 19_435) else { return };
    // The test's own mount is given up in the meantime.
    let script = r#"mount -t tmpfs tmpfs "$stage/mnt"
state >"$stage/before"
echo $$ >"$cgroup/cgroup.procs"
for place in $(sed -n 's/^[^-]* \(\/[^ ]*\) .* - cgroup2 .*/\1/p' /proc/self/mountinfo | tac); do umount "$place"; done
grep -c ' - cgroup2 ' /proc/self/mountinfo >"$stage/mounted" || true
rm -rf "$stage/out"
status=0
bpfassay here "$stage/study.toml" --mount "$stage/mnt" --output "$stage/out" --tool "$stage/tool.toml" >"$stage/printed" 2>&1 || status=$?
echo $status >"$stage/status"
grep -c ' - cgroup2 ' /proc/self/mountinfo >>"$stage/mounted" || true
mount -t cgroup2 cgroup2 "$stage/hierarchy"
echo $$ >"$stage/hierarchy/cgroup.procs"
find "$cgroup" -mindepth 1 -type d >"$stage/left-cgroups"
ls -A "$stage/mnt" /run/bpfassay-here >"$stage/left-files"
rmdir "$cgroup"
"#;
    let output = stage.run(script);
    assert!(output.status.success(), "{}\n{}", printed(&output), stage.read("printed"));
    assert_eq!(
        (stage.read("status").as_str(), stage.read("mounted").as_str()),
        ("0\n", "0\n0\n"),
        "{}",
        stage.read("printed")
    );
    assert_eq!(stage.read("left-cgroups"), "");
    assert!(
        stage.read("left-files").lines().all(|line| line.is_empty() || line.ends_with(':')),
        "{}",
        stage.read("left-files")
    );
    let results = results(&stage.at("out"));
    exact(&results, "tmpfs");
    tool_is_right(&results);
}

/// Kills `victim` once the tool is ready; the stage has what is left some seconds later.
fn killed(victim: &str, port: u16) -> Option<Stage> {
    let stage = Stage::new(&study("'none', 'raw-tracepoint'", "type = 'io-paths'"), port)?;
    let script = format!(
        r#"mount -t tmpfs tmpfs "$stage/mnt"
state >"$stage/before"
here --tool "$stage/tool.toml" & shell=$!
# The tool is there: its cgroup has a process.
for i in $(seq 600); do
  tool=$(find "$cgroup" -path '*-tool*' -name cgroup.procs -exec cat {{}} + 2>/dev/null | head -n 1)
  [ -z "$tool" ] || break
  sleep 0.1
done
[ -n "$tool" ]
state >"$stage/between"
command=$(find "$cgroup" -maxdepth 1 -name cgroup.procs -exec cat {{}} + | while read pid; do [ "$(cat /proc/$pid/comm)" = bpfassay ] && echo $pid; done | head -n 1)
agent=$(find "$cgroup" -maxdepth 1 -name cgroup.procs -exec cat {{}} + | while read pid; do [ "$(cat /proc/$pid/comm)" = bpfassay-guest ] && echo $pid; done | head -n 1)
kill -KILL {victim}
wait $shell || true
for i in $(seq 200); do state >"$stage/after"; cmp -s "$stage/before" "$stage/after" && break; sleep 0.1; done
left
"#
    );
    let output = stage.run(&script);
    assert!(output.status.success(), "{}\n{}", printed(&output), stage.read("printed"));
    // The test only works if something was left.
    let between = stage.read("between");
    for part in ["bpfassay-here-", ".bpfassay-here-", "made.json", "process "] {
        assert!(between.contains(part), "{part}: {between}");
    }
    Some(stage)
}

#[test]
fn a_command_that_is_killed_leaves_nothing() {
    if let Some(stage) = killed("$command", 19_436) {
        stage.nothing_is_left();
    }
}

#[test]
fn an_agent_that_is_killed_leaves_nothing() {
    let Some(stage) = killed("$agent", 19_437) else { return };
    stage.nothing_is_left();
    assert!(stage.read("printed").contains("SIGKILL"), "{}", stage.read("printed"));
}

/// Both processes died, so the next run removes what they left.
#[test]
fn what_both_leave_is_removed_by_the_next_run() {
    let Some(stage) = Stage::new(&study("'none', 'raw-tracepoint'", "script = 'small.ior'"), 19_438) else { return };
    let script = r#"mount -t tmpfs tmpfs "$stage/mnt"
state >"$stage/before"
here & shell=$!
for i in $(seq 3000); do
  [ ! -e /run/bpfassay-here/made.json ] || [ -z "$(ls -A "$stage/mnt")" ] || break
  sleep 0.01
done
kill -KILL $(cat "$cgroup/cgroup.procs") 2>/dev/null
wait $shell || true
state >"$stage/between"
here
left
"#;
    let output = stage.run(script);
    assert!(output.status.success(), "{}\n{}", printed(&output), stage.read("printed"));
    assert!(stage.read("between").contains("made.json"), "{}", stage.read("between"));
    stage.nothing_is_left();
}

/// The results have figures for what a probe does not see.
#[test]
fn what_a_probe_does_not_see_is_reported_with_its_figures() {
    let Some(stage) = Stage::new(&study("'none', 'raw-tracepoint'", "type = 'io-paths'\nsize = 262144"), 19_439) else {
        return;
    };
    let results = stage.measured(r#"mount -t tmpfs tmpfs "$stage/mnt""#, "");
    let runs = results["runs"].as_array().unwrap();
    let run = runs.iter().find(|run| run["record"]["outcome"]["probe"] == "raw-tracepoint").unwrap();
    if run["record"]["outcome"]["type"] != "measured" {
        println!("SKIPPED: this kernel refuses the probe: {:#}", run["record"]["outcome"]);
        return;
    }
    let rows = run["derived"]["coverage"].as_array().unwrap();
    let row = |path: &str| rows.iter().find(|row| row["path"] == path).unwrap();
    assert_eq!(row("read")["difference"]["value"]["bytes"], 0);
    for path in ["libaio-read", "io-uring-read"] {
        let row = row(path);
        // Containers refuse some paths, and kernels can lack them.
        if row["refused"].is_null() {
            assert_eq!(row["difference"]["value"]["bytes"], -262_144, "{row:#}");
        }
    }
    let table = report(&stage.at("out"));
    for path in ["map-read", "libaio-read", "io-uring-read"] {
        let line = table.lines().find(|line| line.trim_start().starts_with(&format!("{path} "))).unwrap();
        assert!(line.contains("none") || line.contains("refused"), "{line}");
    }
}

/// Every machine has mounts, whoever runs this.
#[test]
fn a_directory_that_is_no_mount_point_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("inside");
    fs::create_dir(&inside).unwrap();
    let output = bpfassay(directory.path()).args(["here", "--mount"]).arg(&inside).output().unwrap();
    let message = printed(&output).replace('\n', " ");
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("is no mount point: it lies on the"), "{message}");
    assert!(message.contains("that is mounted at /"), "{message}");
    assert!(!directory.path().join("bpfassay-results").exists());
}

/// Everything that a tool lacks on this machine is known before anything begins.
#[test]
fn a_tool_that_this_machine_does_not_have_is_refused_at_once() {
    if !Stage::programs().join("bpfassay-tracer").exists() {
        println!("SKIPPED: needs the programs of this workspace: build all of it");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = format!("{}:{}", Stage::programs().display(), env::var("PATH").unwrap());
    let tool = "schema = 1\n[tool]\nname = 'absent'\ndescription = 'x'\n[source]\n\
                debian = { suite = 'trixie', package = 'no-such-package', program = '/usr/sbin/no-such-program' }\n";
    fs::write(directory.path().join("absent.toml"), tool).unwrap();
    let mut command = bpfassay(directory.path());
    let output =
        command.args(["here", "--mount", "/proc", "--tool", "absent.toml"]).env("PATH", path).output().unwrap();
    let message = printed(&output).replace('\n', " ");
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("this machine has no /usr/sbin/no-such-program") && message.contains("no-such-package"),
        "{message}"
    );
    assert!(!directory.path().join("bpfassay-results").exists());
}

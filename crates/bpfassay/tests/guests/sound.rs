// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools that leave a changed guest: the guest reports the changes, and measures nothing more.
//! Tools that leave no trace cause no such report.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::common::{bpfassay, guests_wanted, printed, results, study, uncounted};

/// Tools with their deeds at the end of the run, each with a part of the sentence that reports it.
/// Deeds of one tool do not hide each other. A guest without its mount has no mount options, and
/// free space of the file system under test is only checked if nothing else has changed.
const SPOILERS: [(&str, &[(&str, &str)]); 3] = [
    ("unmounts", &[("unmount", "the file system under test: ")]),
    (
        "changes",
        &[
            ("read-only", "the file system under test: options was rw"),
            ("process", "processes: process "),
            ("cgroup", "cgroups: /sys/fs/cgroup/left was not there before"),
            ("program", "BPF objects: program "),
            ("event", "tracing: event p:kprobes/unused"),
            ("filter", "tracing: function filter vfs_read was not there before"),
            ("trigger", "tracing: enabled event sched:sched_process_exec was not there before"),
            ("option", "tracing: option stacktrace was not there before"),
            ("probe", "kprobes: k vfs_read"),
            ("clock", "the clock: nanoseconds between"),
            ("slow-clock", "the clock's speed: microseconds per tick was 10000 and is 9000"),
            ("setting", "settings: /proc/sys/kernel/randomize_va_space was 2 and is 0"),
            ("loopback", "network interfaces: lo was flags 0x9, MTU 65536 and is flags 0x9, MTU 1500"),
        ],
    ),
    ("fills", &[("fill", "free space under test in MiB: /mnt/tmpfs was ")]),
];

/// The program is ready at once, and spoils the guest at its end.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stopped;
static void on_signal(int number) { stopped = 1; }

static int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_APPEND);
	if (fd < 0 || write(fd, text, strlen(text)) < 0) { perror(path); return 1; }
	return close(fd);
}

static int program(void)
{
	struct bpf_insn code[] = { { .code = 0xb7 }, { .code = 0x95 } };
	union bpf_attr attr;
	memset(&attr, 0, sizeof attr);
	attr.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
	attr.insns = (uint64_t)(uintptr_t)code;
	attr.insn_cnt = 2;
	attr.license = (uint64_t)(uintptr_t)"GPL";
	int fd = syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof attr);
	if (fd < 0) { perror("load"); return 1; }
	memset(&attr, 0, sizeof attr);
	attr.pathname = (uint64_t)(uintptr_t)"/sys/fs/bpf/left";
	attr.bpf_fd = fd;
	return syscall(SYS_bpf, BPF_OBJ_PIN, &attr, sizeof attr);
}

static int fill(void)
{
	static char piece[1 << 20];
	int fd = open("/mnt/tmpfs/fill", O_WRONLY | O_CREAT, 0600);
	for (int i = 0; i < 16; i++)
		if (write(fd, piece, sizeof piece) != sizeof piece) { perror("fill"); return 1; }
	return 0;
}

static int escape(void)
{
	if (fork() == 0) {
		setsid();
		put("/sys/fs/cgroup/cgroup.procs", "0");
		for (int number = 1; number < 32; number++) signal(number, SIG_IGN);
		for (;;) pause();
	}
	sleep(1);
	return 0;
}

static int loopback(void)
{
	struct ifreq request = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	request.ifr_flags = IFF_UP | IFF_LOOPBACK;
	strcpy(request.ifr_name, "lo");
	request.ifr_mtu = 1500;
	return ioctl(fd, SIOCSIFMTU, &request);
}

static int deed(const char *what)
{
	struct timespec now;
	struct timex slow = { .modes = ADJ_TICK, .tick = 9000 };
	int status = 0;
	if (!strcmp(what, "unmount")) status = umount2("/mnt/tmpfs", MNT_DETACH);
	if (!strcmp(what, "read-only")) status = mount("", "/mnt/tmpfs", "", MS_REMOUNT | MS_RDONLY, "");
	if (!strcmp(what, "process")) status = escape();
	if (!strcmp(what, "cgroup")) status = mkdir("/sys/fs/cgroup/left", 0755);
	if (!strcmp(what, "program")) status = program();
	if (!strcmp(what, "event")) status = put("/sys/kernel/tracing/kprobe_events", "p:unused vfs_write\n");
	if (!strcmp(what, "filter")) status = put("/sys/kernel/tracing/set_ftrace_filter", "vfs_read\n");
	if (!strcmp(what, "trigger"))
		status = put("/sys/kernel/tracing/events/sched/sched_process_exec/trigger", "stacktrace\n");
	if (!strcmp(what, "option")) status = put("/sys/kernel/tracing/trace_options", "stacktrace\n");
	if (!strcmp(what, "probe"))
		status = put("/sys/kernel/tracing/kprobe_events", "p:spoilt vfs_read\n") ||
			 put("/sys/kernel/tracing/events/kprobes/spoilt/enable", "1\n");
	if (!strcmp(what, "clock")) {
		clock_gettime(CLOCK_REALTIME, &now);
		now.tv_sec += 3600;
		status = clock_settime(CLOCK_REALTIME, &now);
	}
	if (!strcmp(what, "slow-clock")) status = adjtimex(&slow) < 0;
	if (!strcmp(what, "setting")) status = put("/proc/sys/kernel/randomize_va_space", "0\n");
	if (!strcmp(what, "loopback")) status = loopback();
	if (!strcmp(what, "fill")) status = fill();
	if (status) fprintf(stderr, "%s failed\n", what);
	return status;
}

int main(int argc, char **argv)
{
	int status = 0;
	signal(SIGINT, on_signal);
	printf("ready\n");
	fflush(stdout);
	while (!stopped) usleep(10000);
	for (int i = 1; i < argc; i++)
		if (deed(argv[i])) status = 1;
	return status;
}
"#;

/// Writes the tool `name` with `deeds`.
fn tool(directory: &Path, name: &str, deeds: &[&str]) {
    let description = deeds.join(", ");
    let file = format!(
        r#"schema = 1
[tool]
name = "{name}"
description = "{description}, when it ends"
[source]
binary = {{ arch = "x86_64", path = "spoiler" }}
[start]
arguments = {deeds:?}
ready = {{ line = "^ready" }}
"#
    );
    fs::write(directory.join(format!("{name}.toml")), file).unwrap();
}

fn compiled(directory: &Path) {
    fs::write(directory.join("spoiler.c"), PROGRAM).unwrap();
    let mut compiler = Command::new("cc");
    let status = compiler.current_dir(directory).args(["-static", "-O1", "-o", "spoiler", "spoiler.c"]).status();
    assert!(status.unwrap().success());
}

/// Returns all output and files of a study in `directory`.
fn written(directory: &Path, output: &Output) -> String {
    let mut text = printed(output);
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            text.push_str(&String::from_utf8_lossy(&fs::read(path).unwrap()));
        }
    }
    text
}

#[test]
fn a_guest_that_a_tool_leaves_changed_is_found_out() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    compiled(directory.path());
    let mut command = uncounted(directory.path());
    command.args(["run", "--yes", "--arch", "x86_64", "--output", "out"]).arg(study("wrong-tools.toml"));
    for (name, deeds) in SPOILERS {
        tool(directory.path(), name, &deeds.iter().map(|(deed, _)| *deed).collect::<Vec<_>>());
        command.arg("--tool").arg(format!("{name}.toml"));
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", printed(&output));
    let results = results(&directory.path().join("out"));
    let mut wrong = Vec::new();
    for (name, deeds) in SPOILERS {
        let runs = results["runs"].as_array().unwrap();
        let run = runs.iter().find(|run| run["record"]["run"].as_str().unwrap().ends_with(&format!("_{name}")));
        let outcome = &run.unwrap()["record"]["outcome"];
        assert_eq!(outcome["kind"], "unsound", "{name}: {outcome:#}");
        let found = outcome["excerpt"][0].as_str().unwrap();
        let missing = deeds.iter().filter(|(_, sentence)| !found.contains(sentence));
        wrong.extend(missing.map(|(deed, sentence)| format!("{deed}: no `{sentence}` in {found}")));
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), printed(&output));
    // The baseline did nothing and is not blamed.
    let baseline = results["cells"].as_array().unwrap().iter().find(|cell| cell["tool"].is_null()).unwrap();
    assert_eq!((&baseline["runs"]["measured"], &baseline["runs"]["failed"]), (&1.into(), &0.into()), "{baseline:#}");
}

/// The agent's settings for a phase do not outlast it: no tool is blamed for them, and each run
/// shows why it failed.
#[test]
fn a_workload_that_fails_within_a_phase_is_to_blame_alone() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    compiled(directory.path());
    tool(directory.path(), "nothing", &["nothing"]);
    let mut command = bpfassay(directory.path());
    command.arg("run").arg(study("failing.toml")).args(["--tool", "nothing.toml", "--yes", "--output", "out"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", printed(&output));
    let results = results(&directory.path().join("out"));
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 6, "{runs:#?}");
    for run in runs {
        let outcome = &run["record"]["outcome"];
        let said = outcome["excerpt"][0].as_str().unwrap();
        assert!(outcome["kind"] == "run" && said.contains("ior ended with exit status "), "{outcome:#}");
    }
    assert_eq!(results["boots"].as_array().unwrap().len(), 1, "{:#}", results["boots"]);
    let table = printed(&output);
    assert!(table.contains("ended with exit status ") && !table.contains("was found changed"), "{table}");
}

/// Runs each probe configuration and a harmless tool on NFS three times on every kernel, and then
/// on tmpfs. One kernel uses the instruction clock, which takes twice the CPU time. Other tests
/// measure these probe configurations by that clock on the other kernels.
#[test]
fn what_leaves_nothing_behind_is_not_blamed() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    compiled(directory.path());
    tool(directory.path(), "nothing", &["nothing"]);
    for (name, clock, kernels) in
        [("sound", "instructions", "7.2"), ("sound", "wall", "6.1,6.12"), ("wrong-tools", "wall", "6.12")]
    {
        let out = format!("{name}-{clock}");
        let counts = clock == "instructions";
        let mut command = if counts { uncounted(directory.path()) } else { bpfassay(directory.path()) };
        command.args(["run", "--yes", "--arch", "x86_64", "--kernel", kernels, "--clock", clock]);
        command.args(["--tool", "nothing.toml", "--output", &out]);
        let output = command.arg(study(&format!("{name}.toml"))).output().unwrap();
        let text = written(&directory.path().join(&out), &output);
        assert!(!text.contains("unsound") && !text.contains("was found changed"), "{out}: {text}");
        assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    }
}

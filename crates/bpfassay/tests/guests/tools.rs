// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a guest starts, watches and ends other tools under test.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::common::{bpfassay, guests_wanted, printed, results, study, terminal, uncounted};

/// A program that forks up to its limit. It and its children ignore all signals that can be
/// ignored.
const STUBBORN: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	int forked = 0;
	pid_t child;

	for (int number = 1; number < 32; number++)
		signal(number, SIG_IGN);
	while ((child = fork()) > 0)
		forked++;
	if (child == 0)
		for (;;)
			pause();
	printf("forked %d times\n", forked);
	fflush(stdout);
	for (;;)
		pause();
}
"#;

/// The tool file of that program. The tool is ready when it has forked up to its limit of 1000
/// processes. It reports nothing, and the guest waits for it.
const STUBBORN_FILE: &str = r#"schema = 1
[tool]
name = "stubborn"
description = "forks without end, and does not end"
[source]
binary = { arch = "x86_64", path = "stubborn" }
[start]
ready = { line = "forked 999 times" }
[stop]
grace = "1s"
[report]
table = { line = '^reads (?<read>\d+)$', ignore = "^forked" }
counting = "interval"
within = "1s"
figures = [{ value = "read", unit = "calls" }]
"#;

/// A program that loads a BPF program to see whether the kernel has it, and gives it up after the
/// tool was ready. bpftrace's programs of this kind outlive their last descriptor for a while.
const PROBING: &str = r#"
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int load(const char *name)
{
	struct bpf_insn code[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K }, { .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_SOCKET_FILTER, .insns = (long)code, .insn_cnt = 2, .license = (long)"GPL",
	};

	strcpy(attr.prog_name, name);
	return syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
}

int main(void)
{
	int probed = load("probed");

	load("kept");
	puts("ready");
	fflush(stdout);
	usleep(500000);
	close(probed);
	for (;;)
		pause();
}
"#;

const PROBING_FILE: &str = r#"schema = 1
[tool]
name = "probing"
description = "has a program for half a second"
[source]
binary = { arch = "x86_64", path = "probing" }
[start]
ready = { line = "^ready" }
"#;

/// Compiles a program, and writes its tool file; returns the path of the file.
fn compiled(directory: &Path, name: &str, program: &str, tool_file: &str) -> PathBuf {
    let source = format!("{name}.c");
    std::fs::write(directory.join(&source), program).unwrap();
    let mut compiler = Command::new("cc");
    let status = compiler.current_dir(directory).args(["-static", "-O1", "-o", name, &source]).status();
    assert!(status.unwrap().success());
    let file = directory.join(format!("{name}.toml"));
    std::fs::write(&file, tool_file).unwrap();
    file
}

/// Writes a program that has to be killed, and its tool file; returns the path of the file.
fn stubborn(directory: &Path) -> PathBuf {
    compiled(directory, "stubborn", STUBBORN, STUBBORN_FILE)
}

#[test]
fn a_tool_is_measured_or_reported_with_the_reason() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = study("tools.toml");
    let mut command = bpfassay(directory.path());
    command.args(["run", "--yes", "--output", "out"]).arg(file).arg("--tool").arg(stubborn(directory.path()));
    command.arg("--tool").arg(compiled(directory.path(), "probing", PROBING, PROBING_FILE));
    let output = command.output().unwrap();
    // One of the tools is not in the guest, which is the study's fault.
    assert_eq!(output.status.code(), Some(4), "{}", printed(&output));
    let results = results(&directory.path().join("out"));
    let outcome = |name: &str| {
        let runs = results["runs"].as_array().unwrap();
        let run = runs.iter().find(|run| run["record"]["run"].as_str().unwrap().ends_with(name)).unwrap();
        run["record"]["outcome"].clone()
    };

    let works = outcome("_works");
    assert_eq!(works["type"], "measured", "{works:#}");
    let tool = &works["tool"];
    let names = |objects: &Value| -> Vec<String> {
        objects.as_array().unwrap().iter().map(|object| object["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names(&tool["programs"]).contains(&"read_exit".to_owned()), "{tool:#}");
    assert!(names(&tool["maps"]).contains(&"counters".to_owned()), "{tool:#}");
    // Each of our programs has its own link (fexit).
    assert_eq!(tool["links"].as_u64(), Some(tool["programs"].as_array().unwrap().len() as u64));
    assert!(tool["programs"].as_array().unwrap().iter().all(|program| program["memory_bytes"].as_u64() > Some(0)));
    let left = &tool["left_behind"];
    assert_eq!(
        (&left["programs"], &left["maps"], &left["links"]),
        (&Value::Array(vec![]), &Value::Array(vec![]), &0.into())
    );
    assert_eq!(tool["ended"], "ended with exit status 0");
    assert!(tool["ready_ns"].as_u64() > Some(0) && tool["stop_ns"].as_u64() > Some(0), "{tool:#}");
    assert!(tool["resident_bytes"][0].as_u64() > Some(1 << 20), "{tool:#}");
    // The tool sleeps while nothing happens.
    let time = &tool["processor_us"];
    assert!(time["idle_ns"].as_u64() >= Some(1_000_000_000), "{tool:#}");
    assert!(time["idle"].as_u64().unwrap() - time["ready"].as_u64().unwrap() < 10_000, "{tool:#}");

    let ends = outcome("_ends");
    assert_eq!(ends["type"], "refused", "{ends:#}");
    let message = ends["message"].as_str().unwrap();
    assert!(message.starts_with("ended with exit status 2 before it was ready"), "{message}");
    assert!(message.contains("unknown probe `nonsense`"), "{message}");
    let cell = results["cells"].as_array().unwrap().iter().find(|cell| cell["tool"] == "ends").unwrap();
    assert_eq!(cell["attach"]["outcome"], "refused", "{:#}", cell["attach"]);

    let missing = outcome("_missing");
    assert_eq!(missing["type"], "failed", "{missing:#}");
    assert!(missing["excerpt"][0].as_str().unwrap().contains("cannot start /bpfassay/no-such-tool"), "{missing:#}");

    // It is ended with all processes that it forked, whose number is limited; the later runs
    // continue.
    let stubborn = outcome("_stubborn");
    assert_eq!(stubborn["type"], "measured", "{stubborn:#}");
    let tool = &stubborn["tool"];
    assert_eq!(tool["ended"], "was killed: SIGINT had not ended it after 1 s");
    assert_eq!(tool["stop_ns"], Value::Null);
    let beside = outcome("_stubborn-reference");
    assert_eq!(beside["type"], "measured", "{beside:#}");

    let probing = outcome("_probing");
    assert_eq!(names(&probing["tool"]["programs"]), ["kept"], "{probing:#}");
}

/// Tools of Debian's packages, each with the rest of its tool file and the outcome of its run. The
/// first one reads an argument of a tracepoint, for which bpftrace starts `sh`. The second one
/// reports a lookup of the time zone at each report, unless a time zone is set. The third one
/// clears a map, which the kernel hides from the program that would count it: no program runs
/// then. The fourth one reports its own reports.
const OF_PACKAGES: [(&str, &str, &str); 4] = [
    ("argument", "ready = { line = 'attached_probes' }", "measured"),
    ("opens", "ready = { line = '^PID' }", "measured"),
    ("clears", "ready = { line = 'attached_probes' }", "measured"),
    ("echo", "ready = { line = 'attached_probes' }", "failed"),
];

#[test]
fn tools_of_packages_find_what_every_debian_has() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    // bpftrace finds a library by its name in /etc/ld.so.cache.
    let library = "uprobe:libc:getaddrinfo { @resolved = count(); }";
    let argument = "tracepoint:syscalls:sys_enter_openat { @[str(args.filename)] = count(); }";
    write("argument.bt", &format!("{argument}\n{library}\n"));
    let clears = "interval:ms:200 { @a[1] = 1; clear(@a); }";
    write("clears.bt", &format!("kprobe:htab_map_delete_elem {{ @n = count(); }}\n{clears}\n"));
    write("echo.bt", r#"tracepoint:syscalls:sys_enter_write { printf("%d %s\n", pid, comm); }"#);
    let mut command = uncounted(directory.path());
    command.args(["run", "--yes", "--arch", "x86_64", "--output", "out"]).arg(study("wrong-tools.toml"));
    for (name, start, _) in OF_PACKAGES {
        let package = |package: &str| format!("debian = {{ suite = 'trixie', package = '{package}'");
        let source = match name {
            "opens" => format!("{}, program = '/usr/sbin/opensnoop-libbpf' }}", package("libbpf-tools")),
            name => format!(
                "script = {{ path = '{name}.bt', interpreter = '/usr/bin/bpftrace', {} }} }}",
                package("bpftrace")
            ),
        };
        let arguments = if name == "opens" { "" } else { "arguments = ['-f', 'json', '{script}']\n" };
        let head = format!("schema = 1\n[tool]\nname = '{name}'\ndescription = 'x'\n[source]\n{source}\n");
        write(&format!("{name}.toml"), &format!("{head}[start]\n{arguments}{start}\ndeadline = '5min'\n"));
        command.arg("--tool").arg(format!("{name}.toml"));
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", printed(&output));
    let results = results(&directory.path().join("out"));
    let runs = results["runs"].as_array().unwrap();
    for (name, _, expected) in OF_PACKAGES {
        let run = runs.iter().find(|run| run["record"]["run"].as_str().unwrap().ends_with(name)).unwrap();
        let outcome = &run["record"]["outcome"];
        assert_eq!(outcome["type"], expected, "{name}: {outcome:#}");
        let skipped = outcome["tool"]["recursion_misses"].as_u64();
        assert_eq!(skipped > Some(0), name == "clears", "{name}: {outcome:#}");
        if expected == "failed" {
            let said = outcome["excerpt"][0].as_str().unwrap();
            assert!(
                said.contains("echo reports without end what its own output causes") && outcome["kind"] == "run",
                "{said}"
            );
        }
    }
}

/// Expectations of tools about a machine, as shell commands with their outputs: the tool itself,
/// files, directories, names, an interface.
const USUAL: [(&str, &str); 12] = [
    ("test -x /tools/stubborn/program && echo it' is 'there", "it is there"),
    ("echo passwd: $(cut -d: -f1,6 /etc/passwd)", "passwd: root:/root"),
    ("echo run: $(readlink /var/run)", "run: /run"),
    ("touch /var/run/x && test -f /run/x && echo it' is 'writable", "it is writable"),
    ("touch /tmp/x && echo temporary' file'", "temporary file"),
    // bpftrace compiles into a file of /dev/fd since 0.24.
    (
        "echo x >/dev/fd/1 && echo dev: $(readlink /dev/fd) $(readlink /dev/stderr)",
        "dev: /proc/self/fd /proc/self/fd/2",
    ),
    ("test -d /root && echo home' is 'there", "home is there"),
    ("grep -c ' / ' /etc/mtab", "1"),
    ("echo host: $(hostname), $(cat /etc/hostname)", "host: bpfassay, bpfassay"),
    ("test -f /etc/resolv.conf && echo names' are 'looked up", "names are looked up"),
    // IFF_UP and IFF_LOOPBACK.
    ("echo flags: $(cat /sys/class/net/lo/flags)", "flags: 0x9"),
    ("ping -c 1 -q 127.0.0.1 >/tmp/ping && echo loopback' is 'up", "loopback is up"),
];

#[test]
fn a_shell_has_the_tool_in_it_and_shows_how_it_is_started() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    stubborn(directory.path());
    let session = USUAL.map(|(command, _)| command).join("\n");
    let (shown, lines) = terminal::session(directory.path(), "--tool stubborn.toml", &session);
    assert!(shown.contains("stubborn is started there with: /tools/stubborn/program"), "{shown}");
    for (command, printed) in USUAL {
        assert!(lines.iter().any(|line| line.ends_with(printed)), "{command}: {lines:#?}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the program from outside: arguments, exit status, and the refusal line.

use std::{
    borrow::Cow,
    io,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use bpfassay_protocol::tracer_messages::{Step, TracerLine};

fn tracer(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bpfassay-tracer"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Drops the privileges that loading an eBPF program for tracing needs, so that every kernel
/// refuses it, even for root.
fn without_privileges(mut command: Command) -> Command {
    const CAP_SYS_ADMIN: libc::c_ulong = 21;
    const CAP_PERFMON: libc::c_ulong = 38;
    const CAP_BPF: libc::c_ulong = 39;
    let drop_capabilities = || {
        for capability in [CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF] {
            // SAFETY: prctl takes plain numbers here and touches no memory of this process.
            if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability) } != 0 {
                let error = io::Error::last_os_error();
                // A process that is not allowed to drop capabilities has none of them, and a kernel
                // before 5.8 has two fewer.
                if !matches!(error.raw_os_error(), Some(libc::EPERM | libc::EINVAL)) {
                    return Err(error);
                }
            }
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls and allocates nothing, as is required between
    // fork and exec.
    unsafe { command.pre_exec(drop_capabilities) };
    command
}

#[test]
fn a_refusal_is_one_line_and_status_3() {
    for probe in ["kprobe", "fexit"] {
        let output = without_privileges(tracer(&["--probe", probe])).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{probe}: {}", text(&output.stderr));
        let stdout = text(&output.stdout);
        let lines: Vec<&str> = stdout.lines().collect();
        let [line] = lines[..] else { panic!("{probe}: {lines:?}") };
        let TracerLine::Refused(refusal) = serde_json::from_str(line).unwrap() else { panic!("{probe}: {line}") };
        assert_ne!(refusal.step, Step::Open, "{refusal:?}");
        assert!(refusal.errno.is_some_and(|errno| errno > 0), "{refusal:?}");
        assert!(!refusal.message.is_empty() && !refusal.message.contains('\n'), "{refusal:?}");
        assert_eq!(text(&output.stderr), "", "libbpf's messages belong in the refusal");
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    for (argument, expected) in [("--help", "--probe CONFIGURATION"), ("--version", env!("CARGO_PKG_VERSION"))] {
        let output = tracer(&[argument]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{argument}");
        assert!(text(&output.stdout).contains(expected), "{argument}: {}", text(&output.stdout));
    }
}

#[test]
fn invalid_arguments_are_status_2() {
    let cases: [(&[&str], &str); 6] = [
        (&[], "--probe is missing"),
        (&["--probe", "none"], "run the workload without the tracer"),
        (&["--probe", "fexti"], "known are none, kprobe, kretprobe,"),
        (&["--probe", "fexit", "--interval", "2"], "`2` is not a positive whole number with a unit"),
        (&["--probe", "fexit", "--cgroup", "/proc"], "is not in a cgroup v2 hierarchy"),
        (&["--probe", "fexit", "--mount", "/nowhere/at/all"], "name a path that exists"),
    ];
    for (arguments, expected) in cases {
        let output = tracer(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        let complaint = text(&output.stderr);
        assert!(complaint.contains(expected), "{arguments:?}: {complaint}");
    }
}

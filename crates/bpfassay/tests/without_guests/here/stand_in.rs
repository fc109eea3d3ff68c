// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay here` with a shell script instead of the agent: host failures, signals, and results
//! directories of other users.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::Path,
    process::Command,
    time::Duration,
};

use bpfassay_protocol::{frame, message::GuestMessage};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::printed;

/// Runs `bpfassay here` in `directory` with a shell script as agent: it writes `frames`, and
/// executes `end`.
fn stand_in(directory: &Path, frames: &[u8], end: &str) -> String {
    fs::write(directory.join("frames"), frames).unwrap();
    let agent = format!("#!/bin/sh\n[ \"$1\" = clear ] && exit 0\ncat {}/frames\n{end}\n", directory.display());
    for (program, text) in [
        ("bpfassay-guest", agent.as_str()),
        ("bpfassay-tracer", "#!/bin/sh\nexit 1\n"),
        ("bpfassay-ior", "#!/bin/sh\nexit 1\n"),
    ] {
        let path = directory.join(program);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    format!("exec {} here quick --mount /proc --output out", env!("CARGO_BIN_EXE_bpfassay"))
}

/// Returns exit code and output of a shell that executes `script` in `directory`.
fn shell(directory: &Path, script: &str) -> (Option<i32>, String) {
    let output = shell_command(directory, script).output().unwrap();
    (output.status.code(), printed(&output).replace('\n', " "))
}

fn shell_command(directory: &Path, script: &str) -> Command {
    let mut command = Command::new("bash");
    let path = format!("{}:{}", directory.display(), env::var("PATH").unwrap());
    command.args(["-c", script]).current_dir(directory).env("PATH", path).env_remove("RUST_LOG");
    command
}

/// Nothing is known about what is under test.
#[test]
fn what_the_host_fails_blames_no_tool() {
    let failed = GuestMessage::Failed { message: "another bpfassay measures on this machine".to_owned() };
    let failed = frame::encode(&failed).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let here = stand_in(directory.path(), &failed, "exit 1");
    let (code, printed) = shell(directory.path(), &here);
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("another bpfassay measures"), "{printed}");

    fs::remove_dir_all(directory.path().join("out")).unwrap();
    let (code, printed) = shell(directory.path(), &format!("ulimit -f 1; {here}"));
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("ulimit -f"), "{printed}");

    let here = stand_in(directory.path(), &[], "rm -rf out; exit 1");
    let (code, printed) = shell(directory.path(), &here);
    assert_eq!(code, Some(3), "the results directory is gone: {printed}");

    if rustix::process::geteuid().is_root() {
        let script = format!("mount -t tmpfs tmpfs /proc && {here}");
        let unshare = "exec unshare --mount --propagation private bash -c";
        let (code, printed) = shell(directory.path(), &format!("{unshare} '{script}'"));
        assert_eq!(code, Some(3), "{printed}");
        assert!(printed.contains("mount proc at /proc"), "{printed}");
    } else {
        println!("SKIPPED: only root can measure where /proc is not mounted");
    }
}

/// Signals can be ignored from the start, by `nohup`, or by a shell for background jobs.
#[test]
fn signals_that_are_ignored_from_the_start_stay_ignored() {
    for (ignored, code) in [(true, 4), (false, 130)] {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let end = "touch begun; i=0; while [ ! -e go ] && [ $i -lt 300 ]; do sleep 0.1; i=$((i+1)); done; exit 1";
        let here = stand_in(directory.path(), &[], end);
        let trap = if ignored { "trap '' HUP INT;" } else { "" };
        let mut child =
            shell_command(directory.path(), &format!("{trap} {here} 2>/dev/null >/dev/null")).spawn().unwrap();
        while !at("begun").exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let process = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        for signal in [Signal::HUP, Signal::INT] {
            kill_process(process, signal).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            if !ignored {
                break;
            }
        }
        fs::write(at("go"), "").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
}

/// The owner of a results directory plants links to root's files, and a pipe, in place of the files
/// to write.
#[test]
fn nothing_leads_out_of_a_results_directory_of_another_user() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let here = stand_in(directory.path(), &[], "echo reported >&2; exit 1");
    assert_eq!(shell(directory.path(), &here).0, Some(4));
    let names: Vec<_> = fs::read_dir(at("out/logs")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.is_empty());
    let own = |directory: &Path| {
        if rustix::process::geteuid().is_root() {
            chown(directory, Some(1000), Some(1000)).unwrap();
        }
    };
    fs::write(at("victim"), "kept").unwrap();
    fs::create_dir(at("elsewhere")).unwrap();
    let fresh = || {
        fs::remove_dir_all(at("out")).unwrap();
        fs::create_dir_all(at("out/logs")).unwrap();
    };
    let within_time = format!("timeout 60 {}", here.trim_start_matches("exec "));

    for planted in ["link", "pipe"] {
        fresh();
        for name in &names {
            let log = at("out/logs").join(name);
            match planted {
                "link" => symlink(at("victim"), &log).unwrap(),
                _ => rustix::fs::mkfifoat(rustix::fs::CWD, &log, rustix::fs::Mode::RWXU).unwrap(),
            }
        }
        own(&at("out/logs"));
        own(&at("out"));
        assert_eq!(shell(directory.path(), &within_time).0, Some(4), "{planted}");
        assert!(names.iter().all(|name| at("out/logs").join(name).symlink_metadata().unwrap().is_file()));
        assert_eq!(fs::read_to_string(at("victim")).unwrap(), "kept");
    }

    fresh();
    fs::remove_dir(at("out/logs")).unwrap();
    symlink(at("elsewhere"), at("out/logs")).unwrap();
    own(&at("out"));
    let (code, printed) = shell(directory.path(), &within_time);
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("symbolic link"), "{printed}");
    assert_eq!(fs::read_dir(at("elsewhere")).unwrap().count(), 0);

    // Files there are neither read elsewhere nor waited for.
    for (file, command) in [("journal.jsonl", "verify --files out"), ("results.json", "report out")] {
        fresh();
        assert_eq!(shell(directory.path(), &within_time).0, Some(4));
        let bpfassay = format!("timeout 60 {} {command}", env!("CARGO_BIN_EXE_bpfassay"));
        assert_eq!(shell(directory.path(), &bpfassay).0, Some(0), "{file}");
        let path = at("out").join(file);
        fs::rename(&path, at("moved")).unwrap();
        symlink(at("moved"), &path).unwrap();
        assert_eq!(shell(directory.path(), &bpfassay).0, Some(2), "{file} is a link");
        fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        assert_eq!(shell(directory.path(), &bpfassay).0, Some(2), "{file} is a pipe");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent outside a guest.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn agent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bpfassay-guest")).args(arguments).output().unwrap()
}

/// An agent that is started by hand on somebody's machine must not mount anything or power off.
#[test]
fn outside_a_guest_the_agent_does_nothing_without_arguments() {
    for arguments in [&[][..], &["here"], &["here", "--mount", "/tmp"]] {
        let output = agent(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("as process 1 it is the init of a guest"));
    }
}

/// The agent reports in a message to the host, and on standard error to people.
#[test]
fn without_a_job_it_reports_what_is_missing_and_fails() {
    let output = agent(&["here", "--job", "/nonexistent/job.json", "--mount", "/tmp"]);
    assert_eq!(output.status.code(), Some(1));
    for stream in [output.stdout, output.stderr] {
        assert!(String::from_utf8_lossy(&stream).contains("cannot read the job from /nonexistent/job.json"));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stops `here` in the middle of a run. No process, cgroup, file or record of it remains.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, time::Instant};

use bpfassay_protocol::message::{GuestMessage, RunOutcome};

use crate::common::{Stage, is_root};

/// A workload that runs for a long time, in another session and process group.
const LONG: &str = "echo data >data; touch {stage}/begun; exec setsid --wait sleep 4321.{id}";

/// Starts an agent, executes `end` once the agent's workload runs, waits for the agent, which is
/// `$pid`, and lists what is left.
fn ended(id: &str, start: &str, end: &str) -> Stage {
    let stage = Stage::new("mode=1777", &["one", "two"], &LONG.replace("{id}", id));
    let since = Instant::now();
    let status = stage
        .start(&format!(
            r#"{start}
while [ ! -e "$stage/begun" ]; do sleep 0.05; done
{end}
status=0
wait "$pid" || status=$?
echo "$status" >"$stage/status"
find "$stage/mnt" /run/bpfassay-here* -mindepth 0 ! -path "$stage/mnt" >"$stage/left-files"
pgrep -f "sleep [4]321.{id}" >"$stage/left-processes" || true
"#
        ))
        .wait()
        .unwrap();
    assert!(status.success());
    assert!(since.elapsed().as_secs() < 14, "the agent ended only at its time limit");
    stage
}

/// Only the directory in /run that agents lock is left.
fn nothing_is_left(stage: &Stage) {
    stage.no_cgroup_is_left();
    let read = |name: &str| fs::read_to_string(stage.at(name)).unwrap();
    assert_eq!((read("left-files").as_str(), read("left-processes").as_str()), ("/run/bpfassay-here\n", ""));
}

#[test]
fn a_signal_ends_it_and_all_that_it_made() {
    if !is_root() {
        return;
    }
    for signal in ["TERM", "INT", "HUP"] {
        let start = r#"$agent >"$stage/frames" 2>"$stage/errors" & pid=$!"#;
        let stage =
            ended(&format!("1{signal}").replace(char::is_alphabetic, "7"), start, &format!("kill -{signal} $pid"));
        nothing_is_left(&stage);
        assert_eq!(fs::read_to_string(stage.at("status")).unwrap(), "1\n");
        let messages = stage.messages();
        assert!(!messages.iter().any(|message| matches!(message, GuestMessage::RunEnded { .. })), "{messages:?}");
        let is_reported =
            matches!(messages.last(), Some(GuestMessage::Failed { message }) if message.contains("by a signal"));
        assert!(is_reported, "{messages:?}");
    }
}

#[test]
fn the_death_of_its_reader_ends_it_and_all_that_it_made() {
    if !is_root() {
        return;
    }
    let start = r#"mkfifo "$stage/pipe"
cat "$stage/pipe" >"$stage/frames" & listener=$!
$agent >"$stage/pipe" 2>"$stage/errors" & pid=$!"#;
    let stage = ended("28", start, "kill -KILL $listener");
    nothing_is_left(&stage);
    assert_eq!(fs::read_to_string(stage.at("status")).unwrap(), "1\n");
}

/// A killed agent removes nothing. The next one does.
#[test]
fn what_a_killed_agent_left_is_removed_by_the_next() {
    if !is_root() {
        return;
    }
    let start = r#"$agent >"$stage/frames" 2>"$stage/errors" & pid=$!"#;
    let again = r#"kill -KILL $pid
wait $pid || true
ls -A "$stage/mnt" >"$stage/between"
find "$cgroup" -mindepth 1 -type d >"$stage/between-cgroups"
sed -i 's/exec setsid[^"]*/true/g' "$stage/job"
$agent >"$stage/frames" 2>"$stage/errors" & pid=$!"#;
    let stage = ended("39", start, again);
    // The test is only useful if something was left.
    assert!(!fs::read_to_string(stage.at("between")).unwrap().is_empty());
    assert!(!fs::read_to_string(stage.at("between-cgroups")).unwrap().is_empty());
    nothing_is_left(&stage);
    let outcomes = stage.outcomes();
    assert!(outcomes.iter().all(|(_, outcome)| matches!(outcome, RunOutcome::Measured(_))), "{outcomes:?}");
    assert_eq!(outcomes.len(), 2);
}

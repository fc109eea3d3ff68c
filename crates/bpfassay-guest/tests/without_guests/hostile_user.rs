// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `here` as root while a local user can rename entries in the file system under test. Files
//! of others must stay unchanged.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, os::unix::fs::symlink};

use bpfassay_protocol::message::RunOutcome;

use crate::common::{NOBODY, Stage, is_root};

/// Waits for an event and then replaces the directory of runs with a link to the victim. The
/// arguments are the event and the stage.
const ATTACKER: &str = r#"
use strict;
my ($moment, $stage) = @ARGV;
my ($mount, $victim) = ("$stage/mnt", "$stage/victim");
sub found { opendir(my $d, $mount) or die; return grep { /^\.bpfassay-here/ && !-l "$mount/$_" } readdir $d; }
sub swap { for (found()) { rename("$mount/$_", "$mount/aside-$_") and symlink($victim, "$mount/$_"); } }
# Unlinks the link and puts the directory back.
sub back {
    opendir(my $d, $mount) or die;
    for (grep { /^aside-/ } readdir $d) { my ($name) = /^aside-(.*)/; unlink "$mount/$name"; rename("$mount/$_", "$mount/$name"); }
}
sub nap { select undef, undef, undef, $_[0]; }
if ($moment eq "made-before") { mkdir "$mount/.bpfassay-here" or die; mkdir "$mount/.bpfassay-here/run-one"; }
open(my $ready, ">", "$mount/ready") or die;
close $ready;
if ($moment eq "at-once") { while (1) { swap(); } }
if ($moment eq "to-and-fro") { while (1) { swap(); nap(0.003); back(); nap(0.003); } }
nap(0.001) until -e "$stage/open/begun";
swap();
nap(1000);
"#;

/// Executes two runs while the attacker acts at `moment`, on a tmpfs with these options. Returns
/// the outcomes of the runs.
fn attacked(moment: &str, options: &str) -> Vec<RunOutcome> {
    let script = "touch {stage}/open/begun; sleep 0.3; echo ours >{directory}/precious; echo data >data; echo done";
    let stage = Stage::new(options, &["one", "two"], script);
    fs::create_dir(stage.at("open")).unwrap();
    fs::write(stage.at("attacker.pl"), ATTACKER).unwrap();
    // Files of root elsewhere, with names like those of runs.
    for directory in ["victim", "victim/run-one", "victim/run-two", "victim/inner/most"] {
        fs::create_dir_all(stage.at(directory)).unwrap();
        fs::write(stage.at(directory).join("precious"), "theirs").unwrap();
    }
    symlink("/etc/hostname", stage.at("victim/link")).unwrap();
    let status = stage
        .start(&format!(
            r#"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups perl "$stage/attacker.pl" {moment} "$stage" &
attacker=$!
while [ ! -e "$stage/mnt/ready" ]; do sleep 0.01; done
$agent >"$stage/frames" 2>"$stage/errors" || true
kill "$attacker"
"#
        ))
        .wait()
        .unwrap();
    assert!(status.success());
    for directory in ["victim", "victim/run-one", "victim/run-two", "victim/inner/most"] {
        let text = fs::read_to_string(stage.at(directory).join("precious"));
        assert_eq!(text.ok().as_deref(), Some("theirs"), "{moment}: {directory} is not as it was");
        assert!(!stage.at(directory).join("data").exists(), "{moment}: root wrote into {directory}");
    }
    assert!(fs::symlink_metadata(stage.at("victim/link")).is_ok());
    stage.no_cgroup_is_left();
    stage.outcomes().into_iter().map(|(_, outcome)| outcome).collect()
}

/// Returns whether a run failed because somebody moved its directory.
fn noticed(outcome: &RunOutcome) -> bool {
    matches!(outcome, RunOutcome::Failed { message } if message.contains("moved the directory of runs"))
}

#[test]
fn a_directory_that_somebody_made_before_is_not_used() {
    if !is_root() {
        return;
    }
    let outcomes = attacked("made-before", "mode=1777");
    assert!(matches!(outcomes.as_slice(), [RunOutcome::Measured(_), RunOutcome::Measured(_)]), "{outcomes:?}");
}

#[test]
fn a_directory_exchanged_during_a_run_is_noticed_and_nothing_else_is_touched() {
    if !is_root() {
        return;
    }
    // The owner of a directory can rename its entries, sticky or not.
    for options in [format!("mode=1777,uid={NOBODY}"), "mode=0777".to_owned()] {
        let outcomes = attacked("during-a-run", &options);
        assert_eq!(outcomes.iter().map(noticed).collect::<Vec<_>>(), [true, true], "{options}: {outcomes:?}");
    }
}

#[test]
fn a_directory_exchanged_as_soon_as_it_is_there_is_noticed_and_nothing_else_is_touched() {
    if !is_root() {
        return;
    }
    let outcomes = attacked("at-once", "mode=0777");
    // If the directory was replaced before it was opened, no run begins.
    assert!(outcomes.iter().all(noticed), "{outcomes:?}");
}

#[test]
fn a_directory_replaced_and_put_back_leads_nowhere_else() {
    if !is_root() {
        return;
    }
    attacked("to-and-fro", "mode=0777");
}

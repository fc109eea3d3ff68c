// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run that is repeated until it is steady.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;

use bpfassay_protocol::{
    job::{Job, Task, UntilSteady},
    message::{GuestMessage, Phase, RunOutcome, WarmUp},
};

use crate::common::{Stage, is_root};

/// Returns how often a workload ran of which two repeats agree within `margin_ppm`, its outcome,
/// and the announced phases.
fn repeated(margin_ppm: u32) -> (usize, WarmUp, Vec<Phase>) {
    // Each repeat finds the directory as the first one did.
    let stage =
        Stage::new("mode=1777", &["w1"], "test ! -e data && echo x >data && echo once >>{stage}/times && sleep 0.05");
    let mut job: Job = serde_json::from_slice(&fs::read(stage.at("job")).unwrap()).unwrap();
    if let Task::Runs { runs } = &mut job.task {
        runs[0].until_steady = Some(UntilSteady { skipped: 1, agreeing: 2, margin_ppm, most: 4 });
    }
    fs::write(stage.at("job"), serde_json::to_vec(&job).unwrap()).unwrap();
    assert!(stage.start(r#"$agent >"$stage/frames" 2>"$stage/errors""#).wait().unwrap().success());
    stage.no_cgroup_is_left();
    let outcome = stage.outcomes().pop().unwrap().1;
    let RunOutcome::Measured(figures) = outcome else { panic!("{outcome:?}") };
    let announced = |message| match message {
        GuestMessage::Phase { phase, run: Some(_) } => Some(phase),
        _ => None,
    };
    let phases = stage.messages().into_iter().filter_map(announced).collect();
    let times = fs::read_to_string(stage.at("times")).unwrap().lines().count();
    (times, figures.warm_up.unwrap(), phases)
}

#[test]
fn a_run_is_repeated_until_it_is_steady_and_reported_once() {
    if !is_root() {
        return;
    }
    let (times, warm_up, phases) = repeated(u32::MAX);
    assert_eq!((times, warm_up.is_steady, warm_up.durations_ns.len()), (3, true, 3));
    assert!(warm_up.durations_ns.iter().all(|repeat| repeat.len() == 1 && repeat[0] > 50_000_000), "{warm_up:?}");
    assert_eq!(phases, [Phase::Workload]);
}

#[test]
fn a_run_that_is_never_steady_is_repeated_as_often_as_it_may_be() {
    if !is_root() {
        return;
    }
    let (times, warm_up, _) = repeated(0);
    assert_eq!((times, warm_up.is_steady, warm_up.durations_ns.len()), (4, false, 4));
}

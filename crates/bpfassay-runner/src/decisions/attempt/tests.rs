// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests every rule by itself. [`properties`] tests all rules together.

mod properties;

use bpfassay_protocol::{Arch, ProbeConfiguration, message::Phase, probe::Probe};
use bpfassay_study::{Available, Narrowing, Plan, WarmUp, WarmUpRule, expand};

use super::*;
use crate::decisions::{
    observed::{ObservedRun, is_tool_run},
    repeated::RepeatedFailures,
};

/// A plan for one target: a warm-up, `rounds` of the baseline, its control, and three probes.
fn plan(rounds: u32, replicates: u32) -> Plan {
    let mut study = bpfassay_study::load("quick").unwrap();
    let of = |probe| ProbeConfiguration::with_defaults(probe);
    study.probes = vec![ProbeConfiguration::BASELINE, of(Probe::Kprobe), of(Probe::Fexit), of(Probe::Fentry)];
    study.design.rounds = rounds;
    study.design.warm_up = WarmUp::Runs(1);
    study.design.control = true;
    study.design.replicates = replicates;
    let narrowing = Narrowing { archs: vec![Arch::X86_64], kernels: vec!["6.12".to_owned()], ..Narrowing::default() };
    expand(&study, &narrowing, &Available::default()).unwrap()
}

const NOW: Now = Now { unix_ms: 1000, boot_ms: 900 };

fn failure(kind: FailureKind, line: &str) -> RunFailure {
    let excerpt = vec![line.to_owned(), "console".to_owned()];
    RunFailure { kind, phase: Some(Phase::Workload), excerpt, log: None, after: None }
}

fn panicked() -> BootEnd {
    broken(failure(FailureKind::Panic, "Kernel panic"), 130)
}

fn broken(failure: RunFailure, at_ms: u64) -> BootEnd {
    BootEnd::Broken { failure, at_ms, began_ms: at_ms }
}

fn host() -> BootEnd {
    BootEnd::Host { failure: failure(FailureKind::Host, "no QEMU"), class: HostFailure::Start }
}

/// A boot with `ended` ended runs of 100 ms each. One more is in flight if `in_flight`.
fn seen(ended: usize, in_flight: bool) -> ObservedBoot {
    let run = |at: usize| ObservedRun {
        started_unix_ms: 5000 + at as u64,
        began_ms: 0,
        ended_ms: (at < ended).then_some(100),
    };
    ObservedBoot { ready: true, done: false, runs: (0..ended + usize::from(in_flight)).map(run).collect() }
}

/// An attempt at the first block, and the indices of its tool runs.
fn first(plan: &Plan) -> (Attempt, Vec<usize>) {
    let block = plan.blocks[0].clone();
    let tools = block.runs.iter().enumerate().filter(|(_, run)| is_tool_run(run)).map(|(at, _)| at).collect();
    (Attempt::new(&ToDo::fresh(block)), tools)
}

fn next(attempt: &Attempt) -> BootPlan {
    attempt.next().unwrap().0
}

fn id(plan: &BootPlan, at: usize) -> String {
    plan.runs[at].spec.id.clone()
}

#[test]
fn a_whole_boot_is_all_there_is_to_do() {
    let plan = plan(1, 1);
    let (mut attempt, _) = first(&plan);
    let boot = next(&attempt);
    assert_eq!((boot.boot, boot.attempt, boot.runs.len()), (1, 1, plan.blocks[0].runs.len()));
    let conclusion = attempt.ended(&boot, &seen(boot.runs.len(), false), &BootEnd::Done, NOW);
    assert_eq!(conclusion, BootConclusion { verdict: BootVerdict::Complete, failure: None, failed: Vec::new() });
    assert_eq!(attempt.next(), None);
}

#[test]
fn the_first_tool_run_is_to_blame_for_a_death_under_it() {
    let plan = plan(1, 1);
    let (mut attempt, tools) = first(&plan);
    let boot = next(&attempt);
    let blamed = id(&boot, tools[0]);
    let conclusion = attempt.ended(&boot, &seen(tools[0], true), &panicked(), NOW);
    assert_eq!(conclusion.verdict, BootVerdict::Blamed { run: blamed.clone() });
    let [failed] = conclusion.failed.as_slice() else { panic!("{conclusion:#?}") };
    assert_eq!((&failed.run.spec.id, &failed.failure), (&blamed, &failure(FailureKind::Panic, "Kernel panic")));
    assert_eq!((failed.boot, failed.started_unix_ms, failed.duration_ms), (1, 5000 + tools[0] as u64, 130));
    // All other runs are repeated, from the warm-up on.
    let again = next(&attempt);
    assert_eq!((again.boot, again.runs.len(), &again.confirming), (2, boot.runs.len() - 1, &None));
    assert!(again.runs[0].warm_up && !again.ids().contains(&blamed));
}

#[test]
fn a_death_after_a_tool_run_is_that_tools_whatever_is_in_flight() {
    let plan = plan(2, 1);
    // The guest dies between runs, or during a baseline run where one comes next.
    let (_, tools) = first(&plan);
    let runs = &plan.blocks[0].runs;
    let before_baseline =
        tools.iter().copied().find(|&at| runs.get(at + 1).is_some_and(|run| !is_tool_run(run))).unwrap();
    for (at, in_flight) in [(tools[0], false), (before_baseline, true), (*tools.last().unwrap(), false)] {
        let (mut attempt, _) = first(&plan);
        let boot = next(&attempt);
        let conclusion = attempt.ended(&boot, &seen(at + 1, in_flight), &panicked(), NOW);
        assert_eq!(conclusion.verdict, BootVerdict::Blamed { run: id(&boot, at) });
        let failed = &conclusion.failed[0];
        let during = in_flight.then(|| id(&boot, at + 1));
        assert_eq!(failed.failure.after, Some(AfterRun { ms: 30, during: during.clone() }));
        assert_eq!(failed.failure.kind, FailureKind::Panic);
        let failure = failed.failure.to_string();
        let expected = match during {
            Some(run) => format!("kernel panic after the run: Kernel panic, 30 ms after this run, during {run}"),
            None => "kernel panic after the run: Kernel panic, 30 ms after this run, between runs".to_owned(),
        };
        assert_eq!(failure, expected);
        assert_eq!(failed.duration_ms, 100, "the run itself had ended");
        assert!(!next(&attempt).ids().contains(&id(&boot, at)));
    }
}

#[test]
fn of_two_tools_a_confirming_boot_finds_the_one_to_blame() {
    let plan = plan(2, 1);
    let (_, tools) = first(&plan);
    let (before, suspect) = (tools[0], tools[1]);
    for is_blamed in [true, false] {
        let (mut attempt, _) = first(&plan);
        let boot = next(&attempt);
        let conclusion = attempt.ended(&boot, &seen(suspect, true), &panicked(), NOW);
        assert!(matches!(&conclusion.verdict, BootVerdict::Suspected { suspect: involved, otherwise, after_ms: 30 }
            if involved.run == id(&boot, suspect) && otherwise.run == id(&boot, before)));
        assert!(conclusion.failed.is_empty());
        let confirming = next(&attempt);
        assert_eq!(confirming.confirming, Some(id(&boot, suspect)));
        assert_eq!(confirming.ids(), [id(&boot, 0), id(&boot, suspect)], "the warm-up and the suspect alone");
        let (blamed, conclusion) = if is_blamed {
            (suspect, attempt.ended(&confirming, &seen(1, true), &panicked(), NOW))
        } else {
            (before, attempt.ended(&confirming, &seen(2, false), &BootEnd::Done, NOW))
        };
        assert_eq!(conclusion.verdict, BootVerdict::Blamed { run: id(&boot, blamed) });
        let failed = &conclusion.failed[0];
        assert_eq!((failed.boot, &failed.run.spec.id), (1, &id(&boot, blamed)));
        let failure = failed.failure.to_string();
        if is_blamed {
            assert!(failure.contains("boot 2 of this run alone ended badly, too: Kernel panic"), "{failure}");
            assert_eq!(failed.failure.after, None);
        } else {
            let expected =
                format!("30 ms after this run, during {0}; {0} alone did no harm in boot 2", id(&boot, suspect));
            assert!(failure.starts_with("kernel panic after the run: ") && failure.ends_with(&expected), "{failure}");
        }
        let again = next(&attempt);
        assert_eq!((again.confirming.clone(), again.runs.len()), (None, boot.runs.len() - 1));
    }
}

/// A deadline shows that a run is slow. If it is also slow alone, the run before is innocent.
#[test]
fn a_run_that_is_slow_alone_as_well_is_to_blame_for_its_deadline() {
    let plan = plan(2, 1);
    let (_, tools) = first(&plan);
    let (before, suspect) = (tools[0], tools[1]);
    // In the boot that failed, the run had taken 130 ms. Alone, it takes `alone`.
    for (kind, alone, is_blamed) in [
        (FailureKind::PhaseTimeout, 100, true),
        (FailureKind::PhaseTimeout, 65, true),
        (FailureKind::PhaseTimeout, 64, false),
        // The time until a stall is reported is not a time that the run was given.
        (FailureKind::Lockup, 100, false),
        (FailureKind::RcuStall, 100, false),
        (FailureKind::HungTask, 100, false),
        (FailureKind::Panic, 100, false),
    ] {
        let (mut attempt, _) = first(&plan);
        let boot = next(&attempt);
        let hung = broken(failure(kind, "not over after 48 s"), 130);
        attempt.ended(&boot, &seen(suspect, true), &hung, NOW);
        let confirming = next(&attempt);
        let mut seen = seen(2, false);
        seen.runs[1].ended_ms = Some(alone);
        let conclusion = attempt.ended(&confirming, &seen, &BootEnd::Done, NOW);
        let blamed = id(&boot, if is_blamed { suspect } else { before });
        assert_eq!(conclusion.verdict, BootVerdict::Blamed { run: blamed.clone() }, "{kind:?}, {alone} ms");
        let [failed] = conclusion.failed.as_slice() else { panic!("{conclusion:#?}") };
        assert_eq!((failed.boot, &failed.run.spec.id), (1, &blamed));
        let failure = failed.failure.to_string();
        if is_blamed {
            let expected = format!("not over after 48 s; alone in boot 2, this run took {alone} ms");
            assert!(failure.ends_with(&expected), "{failure}");
            assert_eq!((failed.failure.after.as_ref(), failed.duration_ms), (None, 130));
        } else {
            assert!(failure.ends_with("alone did no harm in boot 2"), "{failure}");
        }
        assert_eq!(next(&attempt).runs.len(), boot.runs.len() - 1);
    }
}

/// Runs of 100 ms in sequence, the last of them in flight.
fn one_after_the_other(ended: usize) -> ObservedBoot {
    let run = |at: usize| ObservedRun {
        started_unix_ms: 5000 + 100 * at as u64,
        began_ms: 100 * at as u64,
        ended_ms: (at < ended).then_some(100 * at as u64 + 100),
    };
    ObservedBoot { ready: true, done: false, runs: (0..=ended).map(run).collect() }
}

/// A stall is reported long after it began.
#[test]
fn a_stall_is_the_run_s_during_which_it_began() {
    let plan = plan(3, 1);
    let (_, tools) = first(&plan);
    let runs = &plan.blocks[0].runs;
    let baseline = (tools[1]..runs.len()).find(|&at| !is_tool_run(&runs[at])).unwrap();
    let last = tools.iter().copied().rfind(|&at| at < baseline).unwrap();
    let middle = |at: usize| 100 * at as u64 + 50;
    let stall = |at_ms, began_ms| {
        let failure = failure(FailureKind::Lockup, "BUG: soft lockup - CPU#0 stuck for 26s!");
        BootEnd::Broken { failure, at_ms, began_ms }
    };
    let verdict = |in_flight: usize, began_ms| {
        let (mut attempt, _) = first(&plan);
        let boot = next(&attempt);
        let conclusion =
            attempt.ended(&boot, &one_after_the_other(in_flight), &stall(middle(in_flight), began_ms), NOW);
        (attempt, boot, conclusion)
    };
    let suspected = |(_, boot, conclusion): &(Attempt, BootPlan, BootConclusion)| match &conclusion.verdict {
        BootVerdict::Suspected { suspect, otherwise, .. } => {
            let place = |run: &String| boot.ids().iter().position(|id| id == run).unwrap();
            Some((place(&suspect.run), place(&otherwise.run)))
        }
        _ => None,
    };
    // The report comes during the third tool run. The stall began in the third, in the second,
    // between the first and the second, or in the first.
    for (began_ms, otherwise) in [
        (middle(tools[2]) - 10, tools[1]),
        (middle(tools[1]), tools[1]),
        (middle(tools[0]), tools[0]),
        (middle(tools[2]), tools[1]),
    ] {
        assert_eq!(suspected(&verdict(tools[2], began_ms)), Some((tools[2], otherwise)), "{began_ms}");
    }
    // A suspect that does no harm alone is cleared, however long it takes. The run in which the
    // stall began is to blame.
    let (mut attempt, boot, _) = verdict(tools[2], middle(tools[0]));
    let confirming = next(&attempt);
    let mut alone = one_after_the_other(1);
    alone.runs[1].ended_ms = Some(10_000);
    let conclusion = attempt.ended(&confirming, &alone, &BootEnd::Done, NOW);
    assert_eq!(conclusion.verdict, BootVerdict::Blamed { run: id(&boot, tools[0]) });
    // No run is blamed for a stall that began before the first tool run.
    for began_ms in [0, middle(0), middle(tools[0] - 1)] {
        assert_eq!(verdict(tools[0], began_ms).2.verdict, BootVerdict::Nobody, "{began_ms}");
    }
    let (_, boot, conclusion) = verdict(tools[0], middle(tools[0]) - 20);
    assert_eq!(conclusion.verdict, BootVerdict::Blamed { run: id(&boot, tools[0]) });
    // For a report during a baseline run, the tool run in flight at the beginning of the stall is
    // to blame, or else the last tool run before it.
    for (began_ms, blamed) in [(middle(tools[0]), tools[0]), (middle(last), last), (middle(baseline), last)] {
        let (_, boot, conclusion) = verdict(baseline, began_ms);
        assert_eq!(conclusion.verdict, BootVerdict::Blamed { run: id(&boot, blamed) }, "{began_ms}");
    }
    assert_eq!(verdict(baseline, middle(0)).2.verdict, BootVerdict::Nobody);
}

#[test]
fn in_a_confirming_boot_only_the_baseline_warms_up() {
    let mut plan = plan(1, 1);
    plan.study.design.warm_up = WarmUp::Rule(WarmUpRule::Probes);
    let plan = expand(&plan.study, &plan.narrowing, &Available::default()).unwrap();
    let (mut attempt, tools) = first(&plan);
    let boot = next(&attempt);
    assert_eq!(boot.runs.iter().filter(|run| run.warm_up).count(), 4);
    // Two tools ran before, so a confirming boot has to find out which one it was.
    let suspect = tools[tools.len() - 1];
    attempt.ended(&boot, &seen(suspect, true), &panicked(), NOW);
    let confirming = next(&attempt);
    assert_eq!(confirming.ids(), [id(&boot, 0), id(&boot, suspect)]);
    assert!(confirming.runs[0].spec.probe.is_baseline());
}

#[test]
fn a_confirming_boot_that_breaks_before_its_run_decides_nothing() {
    let plan = plan(2, 1);
    let (mut attempt, tools) = first(&plan);
    let boot = next(&attempt);
    attempt.ended(&boot, &seen(tools[1], true), &panicked(), NOW);
    let confirming = next(&attempt);
    let conclusion = attempt.ended(&confirming, &seen(0, true), &panicked(), NOW);
    assert_eq!(conclusion.verdict, BootVerdict::Nobody);
    assert_eq!(next(&attempt).ids(), confirming.ids(), "once more");
    // The confirming boot is repeated after an interruption or a host failure, too.
    for end in [BootEnd::Interrupted, host()] {
        let confirming = next(&attempt);
        assert!(attempt.ended(&confirming, &seen(1, true), &end, NOW).failed.is_empty());
        assert_eq!(next(&attempt).ids(), confirming.ids());
    }
}

#[test]
fn before_any_tool_no_run_is_blamed_and_the_block_is_tried_once_more() {
    let plan = plan(1, 1);
    for (ended, in_flight) in [(0, false), (0, true), (1, false)] {
        let (mut attempt, _) = first(&plan);
        let boot = next(&attempt);
        let conclusion = attempt.ended(&boot, &seen(ended, in_flight), &panicked(), NOW);
        assert_eq!((&conclusion.verdict, conclusion.failed.len()), (&BootVerdict::Nobody, 0));
        let again = next(&attempt);
        assert_eq!((again.boot, again.ids()), (2, boot.ids()));
        let conclusion = attempt.ended(&again, &seen(ended, in_flight), &panicked(), NOW);
        assert_eq!(conclusion.failed.len(), boot.runs.len());
        let failure = conclusion.failed[0].failure.to_string();
        assert!(failure.contains("Kernel panic; no tool had run, and boot 1 ended in the same way"), "{failure}");
        assert_eq!(attempt.next(), None);
    }
    // Boots that fail in different ways are repeated more often, but not for ever.
    let (mut attempt, _) = first(&plan);
    for kind in [FailureKind::Panic, FailureKind::PhaseTimeout] {
        let boot = next(&attempt);
        let end = broken(failure(kind, "x"), 1);
        assert!(attempt.ended(&boot, &seen(0, true), &end, NOW).failed.is_empty());
    }
    let boot = next(&attempt);
    let end = broken(failure(FailureKind::ProtocolError, "x"), 1);
    assert_eq!(attempt.ended(&boot, &seen(0, true), &end, NOW).failed.len(), boot.runs.len());
}

#[test]
fn a_tool_that_changed_the_guest_failed_as_the_agent_reports() {
    let plan = plan(1, 1);
    let (mut attempt, tools) = first(&plan);
    let boot = next(&attempt);
    let unsound =
        |run: String| BootEnd::Unsound { run, failure: failure(FailureKind::Unsound, "no mount"), at_ms: 105 };
    let conclusion = attempt.ended(&boot, &seen(tools[0] + 1, false), &unsound(id(&boot, tools[0])), NOW);
    assert_eq!(conclusion.verdict, BootVerdict::Blamed { run: id(&boot, tools[0]) });
    let failure = conclusion.failed[0].failure.to_string();
    assert_eq!(failure, "guest left changed after the run: no mount, 5 ms after this run, between runs");
    // Such a message does not blame a baseline run.
    let (mut attempt, _) = first(&plan);
    let conclusion = attempt.ended(&boot, &seen(1, false), &unsound(id(&boot, 0)), NOW);
    assert_eq!(conclusion.verdict, BootVerdict::Nobody);
}

#[test]
fn what_ended_two_boots_is_not_tried_a_third_time() {
    let plan = plan(4, 1);
    let (mut attempt, _) = first(&plan);
    let of = |runs: &[PlannedRun]| runs.iter().filter(|run| run.cell.ends_with("_fexit")).count();
    let mut blamed = Vec::new();
    let conclusion = loop {
        let boot = next(&attempt);
        let at = boot.runs.iter().position(|run| run.cell.ends_with("_fexit")).unwrap();
        let conclusion = attempt.ended(&boot, &seen(at, true), &panicked(), NOW);
        if let BootVerdict::Blamed { run } = &conclusion.verdict {
            blamed.push(run.clone());
        }
        if conclusion.failed.len() > 1 {
            break conclusion;
        }
    };
    assert_eq!((blamed.len(), of(&next(&attempt).runs)), (2, 0));
    let planned = of(&plan.blocks[0].runs);
    assert_eq!(conclusion.failed.len(), planned - 1, "the second one, and all that were left");
    for failed in &conclusion.failed[1..] {
        assert_eq!(failed.failure.kind, FailureKind::NotTried);
        let failure = failed.failure.to_string();
        assert_eq!(failure, format!("not tried: {} ended a boot of this block each", blamed.join(" and ")));
    }
}

#[test]
fn the_host_is_tried_three_times_and_then_left_to_be_resumed() {
    let plan = plan(1, 1);
    let (mut attempt, _) = first(&plan);
    for pause in [0, 1, 5] {
        let (boot, waited) = attempt.next().unwrap();
        assert_eq!(waited, Duration::from_secs(pause));
        let conclusion = attempt.ended(&boot, &seen(2, true), &host(), NOW);
        assert_eq!(conclusion.verdict, BootVerdict::Host);
        let failed = if pause == 5 { boot.runs.len() } else { 0 };
        assert_eq!(conclusion.failed.len(), failed);
        assert!(conclusion.failed.iter().all(|failed| failed.failure.kind == FailureKind::Host));
    }
    assert_eq!((attempt.next(), attempt.left_by_host()), (None, Some(HostFailure::Start)));
    // A boot is not repeated if a repetition cannot help.
    let (mut attempt, _) = first(&plan);
    let lacking = BootEnd::Host { failure: failure(FailureKind::Host, "no nfsd"), class: HostFailure::Lacking };
    let boot = next(&attempt);
    assert_eq!(attempt.ended(&boot, &seen(0, false), &lacking, NOW).failed.len(), boot.runs.len());
}

#[test]
fn three_blocks_that_the_host_fails_alike_are_enough() {
    let plan = plan(1, 5);
    let left = |class| {
        let mut attempt = Attempt::new(&ToDo::fresh(plan.blocks[0].clone()));
        let end = BootEnd::Host { failure: failure(FailureKind::Host, "x"), class };
        while let Some((boot, _)) = attempt.next() {
            attempt.ended(&boot, &ObservedBoot::default(), &end, NOW);
        }
        attempt
    };
    let whole = || {
        let mut attempt = Attempt::new(&ToDo::fresh(plan.blocks[0].clone()));
        let boot = next(&attempt);
        attempt.ended(&boot, &seen(boot.runs.len(), false), &BootEnd::Done, NOW);
        attempt
    };
    let paused = |attempts: &[Attempt]| {
        let mut repeated = RepeatedFailures::default();
        attempts.iter().zip(&plan.blocks).for_each(|(attempt, block)| repeated.done(block, attempt));
        repeated.pause()
    };
    let [start, exit, lacking] = [HostFailure::Start, HostFailure::Exit, HostFailure::Lacking].map(left);
    assert_eq!(paused(&[start.clone(), start.clone()]), None);
    let why = paused(&[start.clone(), start.clone(), start.clone()]).unwrap();
    assert!(why.contains("3 blocks in a row (QEMU could not be started)"), "{why}");
    assert_eq!(paused(&[start.clone(), exit, start.clone(), start.clone()]), None);
    assert_eq!(paused(&[start.clone(), start.clone(), whole(), start.clone()]), None);
    assert!(paused(&[start.clone(), lacking.clone(), start.clone(), start]).is_some());
    assert_eq!(paused(&[lacking.clone(), lacking.clone(), lacking]), None);
}

#[test]
fn a_kernel_that_does_not_come_up_is_not_booted_for_every_block() {
    let plan = plan(1, 3);
    let given_up = |kind, phase| {
        let mut attempt = Attempt::new(&ToDo::fresh(plan.blocks[0].clone()));
        let failure = RunFailure { phase: Some(phase), ..failure(kind, "Kernel panic") };
        while let Some((boot, _)) = attempt.next() {
            attempt.ended(&boot, &ObservedBoot::default(), &broken(failure.clone(), 1), NOW);
        }
        attempt
    };
    let not_tried = |attempts: [Attempt; 2]| {
        let mut repeated = RepeatedFailures::default();
        attempts.iter().zip(&plan.blocks).for_each(|(attempt, block)| repeated.done(block, attempt));
        repeated.not_tried(&plan.blocks[2])
    };
    let panic = || given_up(FailureKind::Panic, Phase::Boot);
    let failure = not_tried([panic(), panic()]).unwrap();
    assert_eq!(failure.kind, FailureKind::NotTried);
    let blocks = format!("were never ready in {} and {}", plan.blocks[0].id, plan.blocks[1].id);
    assert!(failure.excerpt[0].contains(&blocks), "{:?}", failure.excerpt);
    assert_eq!(not_tried([panic(), given_up(FailureKind::BootTimeout, Phase::Boot)]), None);
    assert!(
        not_tried([given_up(FailureKind::Agent, Phase::SetUp), given_up(FailureKind::Agent, Phase::SetUp)]).is_some()
    );
}

/// One boot shows that nothing of a kernel runs, and this counts for all its blocks.
#[test]
fn a_kernel_that_is_silent_from_the_first_byte_is_booted_once() {
    let plan = plan(1, 3);
    let end = |lines: &[&str]| {
        let excerpt = lines.iter().map(|&line| line.to_owned()).collect();
        let kind = FailureKind::BootTimeout;
        let failure = RunFailure { kind, phase: Some(Phase::Boot), excerpt, log: None, after: None };
        broken(failure, 60_000)
    };
    let silent = || end(&["the agent sent no message within 60 s", "its console stayed empty"]);
    let mut attempt = Attempt::new(&ToDo::fresh(plan.blocks[0].clone()));
    let boot = next(&attempt);
    let conclusion = attempt.ended(&boot, &ObservedBoot::default(), &silent(), NOW);
    assert_eq!((conclusion.failed.len(), attempt.next()), (boot.runs.len(), None));
    let first = "the agent sent no message within 60 s; no other boot is tried";
    assert_eq!(conclusion.failed[0].failure.excerpt, [first, "its console stayed empty"]);
    let mut repeated = RepeatedFailures::default();
    repeated.done(&plan.blocks[0], &attempt);
    let failure = repeated.not_tried(&plan.blocks[1]).unwrap();
    assert!(failure.excerpt[0].contains(&format!("never ready in {}: ", plan.blocks[0].id)), "{:?}", failure.excerpt);
    // The journal has the failure of the boot. A resumed run decides from it in the same way.
    let mut resumed = RepeatedFailures::default();
    resumed.never_ready(&plan.blocks[0], conclusion.failure.as_ref().unwrap());
    assert!(resumed.not_tried(&plan.blocks[1]).is_some());
    // The next boot is made if the kernel wrote something, or if a guest was ready before.
    for (ready, end) in [(false, end(&["the agent sent no message within 60 s", "Linux version"])), (true, silent())] {
        let mut attempt = Attempt::new(&ToDo::fresh(plan.blocks[0].clone()));
        let boot = next(&attempt);
        let seen = ObservedBoot { ready, ..ObservedBoot::default() };
        assert_eq!(attempt.ended(&boot, &seen, &end, NOW).failed, []);
        assert!(attempt.next().is_some());
    }
}

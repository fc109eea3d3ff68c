// SPDX-License-Identifier: MIT OR Apache-2.0
//! Valid orders, and every way to depart from them.

use std::collections::BTreeMap;

use bpfassay_protocol::{
    ProbeConfiguration,
    message::{Interval, MountFacts, Reading, RunFigures},
    tracer_messages::Refusal,
};
use proptest::prelude::*;

use super::*;

fn hello() -> GuestMessage {
    GuestMessage::Hello { agent: "1".to_owned() }
}

fn phase(phase: Phase, run: &str) -> GuestMessage {
    GuestMessage::Phase { phase, run: Some(run.to_owned()) }
}

fn of_boot(phase: Phase) -> GuestMessage {
    GuestMessage::Phase { phase, run: None }
}

fn ready() -> GuestMessage {
    GuestMessage::Ready(Box::default())
}

fn ended(run: &str, outcome: RunOutcome) -> GuestMessage {
    GuestMessage::RunEnded { run: run.to_owned(), outcome: Box::new(outcome) }
}

fn failed() -> RunOutcome {
    RunOutcome::Failed { message: "no space".to_owned() }
}

fn refused() -> RunOutcome {
    let text = r#"{"step":"attach","program":null,"errno":524,"message":"m","verifier":null}"#;
    RunOutcome::Refused(serde_json::from_str::<Refusal>(text).unwrap())
}

/// The refusal of a run whose tool was refused in the run `earlier`.
fn refused_in(earlier: &str) -> RunOutcome {
    match refused() {
        RunOutcome::Refused(refusal) => RunOutcome::Refused(Refusal { run: Some(earlier.to_owned()), ..refusal }),
        other => other,
    }
}

fn measured() -> RunOutcome {
    let reading = Reading { monotonic_ns: 0, idle_ns: None, tracer: None, mountstats: None };
    RunOutcome::Measured(Box::new(RunFigures {
        probe: ProbeConfiguration::BASELINE,
        engine: None,
        summary: String::new(),
        features: Vec::new(),
        cgroup: 0,
        mount: MountFacts::default(),
        phases: Vec::new(),
        whole: Interval { before: reading.clone(), after: reading },
        tracer: None,
        ended: None,
        tool_statistics: Vec::new(),
        tool: None,
        samples: Vec::new(),
        bystander: None,
        warm_up: None,
        namespace: Vec::new(),
    }))
}

fn unsound(run: &str) -> GuestMessage {
    GuestMessage::Unsound { run: run.to_owned(), differences: vec!["a mount is gone".to_owned()] }
}

/// Every valid order of messages in a run.
fn runs(id: &str) -> Vec<Vec<GuestMessage>> {
    use Phase::{Attach, TearDown, Workload};
    let way = |phases: &[Phase], outcome| {
        phases.iter().map(|&of| phase(of, id)).chain([ended(id, outcome)]).collect::<Vec<_>>()
    };
    vec![
        way(&[], failed()),
        way(&[Attach], refused()),
        way(&[Attach], failed()),
        way(&[Attach, TearDown], failed()),
        way(&[TearDown], failed()),
        way(&[Workload, TearDown], measured()),
        way(&[Attach, Workload, TearDown], measured()),
        way(&[Attach, Workload, TearDown], failed()),
        way(&[Workload], failed()),
    ]
}

fn start() -> Vec<GuestMessage> {
    vec![hello(), of_boot(Phase::SetUp), ready()]
}

/// Returns how many of `messages` are accepted, and the error of the next.
fn taken(booted_for: BootedFor, messages: &[GuestMessage]) -> (usize, Option<OutOfOrder>) {
    let mut order = MessageOrder::new(booted_for);
    for (index, message) in messages.iter().enumerate() {
        if let Err(error) = order.take(message) {
            return (index, Some(error));
        }
    }
    (messages.len(), None)
}

/// Returns the error for the last of `messages`, which must be the only one refused.
fn refusal(messages: &[GuestMessage]) -> String {
    let (count, error) = taken(BootedFor::Runs, messages);
    assert_eq!(count, messages.len() - 1, "{error:?}");
    error.unwrap().to_string()
}

#[test]
fn errors_name_the_message_and_what_was_expected() {
    let from_start = |more: &[GuestMessage]| refusal(&[start(), more.to_vec()].concat());
    assert_eq!(refusal(&[ready()]), "received `ready`, expected `hello` first and once");
    assert_eq!(refusal(&[hello(), hello()]), "received `hello`, expected phase `set-up`");
    assert_eq!(
        from_start(&[phase(Phase::Workload, "r1"), phase(Phase::Workload, "r1")]),
        "received phase `workload` of run `r1`, expected phase `tear-down` or the end of run `r1`, not measured"
    );
    assert_eq!(
        from_start(&[of_boot(Phase::Shell)]),
        "received phase `shell`, expected a phase or the end of a run that has not ended yet, or `done`"
    );
    assert_eq!(
        from_start(&[phase(Phase::Attach, "r1"), GuestMessage::Done]),
        "received `done`, expected phase `workload`, `tear-down` or the end of run `r1`"
    );
    let last = GuestMessage::Failed { message: "mount: \x1b[2Jno such device".to_owned() };
    assert_eq!(
        from_start(&[last, GuestMessage::Done]),
        r"received `done`, expected nothing after `failed` (`mount: \u{1b}[2Jno such device`)"
    );
}

#[test]
fn a_run_is_measured_only_after_its_phases_and_refused_only_before_its_workload() {
    let go = |more: &[GuestMessage]| refusal(&[start(), more.to_vec()].concat());
    go(&[ended("r", measured())]);
    go(&[ended("r", refused())]);
    go(&[phase(Phase::Attach, "r"), ended("r", measured())]);
    go(&[phase(Phase::Workload, "r"), ended("r", measured())]);
    go(&[phase(Phase::Workload, "r"), ended("r", refused())]);
    go(&[phase(Phase::Attach, "r"), phase(Phase::TearDown, "r"), ended("r", measured())]);
    go(&[phase(Phase::Attach, "r"), ended("other", failed())]);
    go(&[phase(Phase::Attach, "r"), phase(Phase::Workload, "other")]);
    go(&[phase(Phase::Workload, &"x".repeat(MAX_RUN_ID + 1))]);
}

#[test]
fn a_run_is_refused_without_a_phase_only_where_an_earlier_one_was() {
    let after = |outcome: RunOutcome| {
        [start(), vec![phase(Phase::Attach, "a"), ended("a", refused()), ended("b", outcome)]].concat()
    };
    assert_eq!(taken(BootedFor::Runs, &[after(refused_in("a")), vec![GuestMessage::Done]].concat()).1, None);
    for outcome in [refused(), refused_in("b"), refused_in("c"), measured()] {
        refusal(&after(outcome));
    }
    // The run that the refusal names must be known.
    let of = |named| refused_in(named);
    let second = |outcome| [start(), vec![phase(Phase::Attach, "a"), ended("a", outcome)]].concat();
    assert_eq!(taken(BootedFor::Runs, &second(of("a"))).1, None);
    refusal(&second(of("c")));
}

#[test]
fn unsound_is_the_run_that_ended_last_and_ends_the_boot() {
    let through = |more: &[GuestMessage]| taken(BootedFor::Runs, &[start(), more.to_vec()].concat()).1;
    assert_eq!(through(&[ended("r", failed()), unsound("r")]), None);
    assert!(through(&[ended("r", failed()), ended("s", failed()), unsound("r")]).is_some());
    assert!(through(&[unsound("r")]).is_some());
    assert!(through(&[ended("r", failed()), phase(Phase::Attach, "s"), unsound("r")]).is_some());
    assert!(through(&[ended("r", failed()), unsound("r"), GuestMessage::Done]).is_some());
}

#[test]
fn a_shell_comes_only_in_a_shell_job_and_runs_never_do_there() {
    let shell = [start(), vec![of_boot(Phase::Shell), GuestMessage::Done]].concat();
    assert_eq!(taken(BootedFor::Shell, &shell), (5, None));
    assert_eq!(taken(BootedFor::Runs, &shell).0, 3);
    let run = [start(), vec![phase(Phase::Workload, "r")]].concat();
    assert_eq!(taken(BootedFor::Shell, &run).0, 3);
    let twice = [start(), vec![of_boot(Phase::Shell), of_boot(Phase::Shell)]].concat();
    assert_eq!(taken(BootedFor::Shell, &twice).0, 4);
}

/// A boot in which each run has one of its valid orders.
fn boot(ways: &[usize]) -> Vec<GuestMessage> {
    let mut messages = start();
    for (index, &way) in ways.iter().enumerate() {
        let mut all = runs(&format!("r{index}"));
        let way = way % all.len();
        messages.extend(all.swap_remove(way));
    }
    messages.push(GuestMessage::Done);
    messages
}

/// Any message about one of three runs or none.
fn any_message() -> impl Strategy<Value = GuestMessage> {
    let run = prop_oneof![Just("a"), Just("b"), Just("c")];
    let any_phase = prop::sample::select(Phase::ALL);
    prop_oneof![
        1 => Just(hello()),
        1 => Just(ready()),
        1 => Just(GuestMessage::Done),
        1 => Just(GuestMessage::Log { text: "x".to_owned() }),
        1 => Just(GuestMessage::Failed { message: "x".to_owned() }),
        1 => run.clone().prop_map(unsound),
        2 => any_phase.clone().prop_map(of_boot),
        8 => (any_phase, run.clone()).prop_map(|(of, run)| phase(of, run)),
        6 => (run, 0..3).prop_map(|(run, outcome)| {
            ended(run, match outcome { 0 => failed(), 1 => refused(), _ => measured() })
        }),
    ]
}

proptest! {
    #[test]
    fn every_boot_that_keeps_the_order_is_taken(ways in prop::collection::vec(0usize..9, 0..6), logs: Vec<prop::sample::Index>) {
        let mut messages = boot(&ways);
        for log in logs {
            // The log comes after the first message and before the last.
            let at = 1 + log.index(messages.len() - 1);
            messages.insert(at, GuestMessage::Log { text: "x".to_owned() });
        }
        prop_assert_eq!(taken(BootedFor::Runs, &messages), (messages.len(), None));
    }

    #[test]
    fn no_message_comes_twice(ways in prop::collection::vec(0usize..9, 0..6), which: prop::sample::Index, again: prop::sample::Index) {
        let mut messages = boot(&ways);
        let which = which.index(messages.len());
        let at = which + 1 + again.index(messages.len() - which);
        messages.insert(at, messages[which].clone());
        let (count, error) = taken(BootedFor::Runs, &messages);
        prop_assert!(error.is_some() && count <= at);
    }

    #[test]
    fn what_is_taken_of_any_messages_keeps_the_order(
        messages in prop::collection::vec(any_message(), 0..40),
        begun: bool,
        shell: bool,
    ) {
        let messages = if begun { [start(), messages].concat() } else { messages };
        let booted_for = if shell { BootedFor::Shell } else { BootedFor::Runs };
        let (count, _) = taken(booted_for, &messages);
        let all: Vec<_> = messages[..count].iter().filter(|message| !matches!(message, GuestMessage::Log { .. })).collect();
        let mut seen = BTreeMap::<String, Vec<u8>>::new();
        let mut open: Option<&str> = None;
        for (index, message) in all.iter().enumerate() {
            prop_assert_eq!(index == 0, matches!(message, GuestMessage::Hello { .. }));
            prop_assert_eq!(index == 1 && !matches!(message, GuestMessage::Failed { .. }),
                matches!(message, GuestMessage::Phase { phase: Phase::SetUp, .. }));
            let last = matches!(message, GuestMessage::Done | GuestMessage::Failed { .. } | GuestMessage::Unsound { .. });
            prop_assert!(!last || index + 1 == all.len(), "nothing after the last message");
            let (run, step) = match message {
                GuestMessage::Phase { phase, run: Some(run) } => (run, match phase {
                    Phase::Attach => 1, Phase::Workload => 2, Phase::TearDown => 3, _ => 0,
                }),
                GuestMessage::RunEnded { run, .. } => (run, 4),
                GuestMessage::Done => {
                    prop_assert!(open.is_none(), "every run has ended");
                    continue;
                }
                GuestMessage::Phase { phase: Phase::Shell, .. } => {
                    prop_assert!(shell);
                    continue;
                }
                _ => continue,
            };
            prop_assert!(!shell && step > 0);
            prop_assert!(open.is_none_or(|open| open == run), "one run at a time");
            open = (step < 4).then_some(run);
            let steps = seen.entry(run.clone()).or_default();
            prop_assert!(steps.last().is_none_or(|&before| before < step), "each step at most once, and in order");
            steps.push(step);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests streams of messages of several agents.

use bpfassay_protocol::{
    Operation, ProbeConfiguration,
    message::{Interval, MountFacts, MountStats, Phase, Reading},
    operation::Totals,
    probe::Probe,
    tracer_messages::{CounterRow, Device, Losses, Sample, Step},
};

use super::*;

const RUN: &str = "r1";

fn nodes() -> Vec<String> {
    ["n1", "n2", "n3"].map(str::to_owned).into()
}

fn phase(phase: Phase) -> GuestMessage {
    GuestMessage::Phase { phase, run: Some(RUN.to_owned()) }
}

fn ended(outcome: RunOutcome) -> GuestMessage {
    GuestMessage::RunEnded { run: RUN.to_owned(), outcome: Box::new(outcome) }
}

fn refused(message: &str) -> GuestMessage {
    ended(RunOutcome::Refused(Refusal::new(Step::Attach, message.to_owned())))
}

fn failed(message: &str) -> GuestMessage {
    ended(RunOutcome::Failed { message: message.to_owned() })
}

const MOUNT: Device = Device { major: 0, minor: 40 };

fn row(cgroup: u64, device: Device, mount: u64, bytes: u64) -> CounterRow {
    CounterRow {
        cgroup,
        device,
        mount,
        path: None,
        operation: Operation::Write,
        variant: None,
        task: None,
        totals: Totals { calls: bytes / 4, bytes, errors: 0 },
        latency: vec![0, bytes / 4],
    }
}

/// Figures of a node whose ranks are in `cgroup`, on the mount `device` with the id `mount`.
fn figures(cgroup: u64, device: Device, mount: u64, rows: Vec<CounterRow>) -> RunFigures {
    let probe = ProbeConfiguration::with_defaults(Probe::RawTracepoint);
    let reading = |rows: Vec<CounterRow>| Reading {
        monotonic_ns: cgroup * 1000,
        idle_ns: None,
        tracer: Some(Sample {
            monotonic_ns: cgroup * 1000,
            label: None,
            rows,
            events: Vec::new(),
            losses: Losses {
                recursion_misses: Some(1),
                missed_probes: (cgroup == 1).then_some(1),
                ..Losses::default()
            },
        }),
        mountstats: Some(MountStats { normal_written: cgroup, ..MountStats::default() }),
    };
    RunFigures {
        probe,
        engine: None,
        summary: format!("of cgroup {cgroup}"),
        features: Vec::new(),
        cgroup,
        mount: MountFacts { id: mount, device, path: "/scratch".to_owned(), ..MountFacts::default() },
        namespace: Vec::new(),
        phases: Vec::new(),
        whole: Interval { before: reading(Vec::new()), after: reading(rows) },
        tracer: None,
        ended: None,
        tool_statistics: Vec::new(),
        tool: None,
        samples: Vec::new(),
        bystander: None,
        warm_up: None,
    }
}

/// Joins a list of messages for each node, all of which have been sent.
fn joined(sent: [Vec<GuestMessage>; 3]) -> Vec<Result<Joined, String>> {
    let mut joiner = Joiner::new(&nodes());
    for (at, messages) in sent.into_iter().enumerate() {
        for message in messages {
            joiner.push(at, message).unwrap();
        }
    }
    std::iter::from_fn(|| joiner.next().transpose()).take(20).collect()
}

#[test]
fn messages_are_those_of_one_agent_when_all_nodes_have_sent_them() {
    let mut joiner = Joiner::new(&nodes());
    joiner.push(0, phase(Phase::Attach)).unwrap();
    joiner.push(0, phase(Phase::Workload)).unwrap();
    joiner.push(2, phase(Phase::Attach)).unwrap();
    assert_eq!(joiner.next(), Ok(None));
    // A log line comes from one node and does not wait for the others.
    joiner.push(1, GuestMessage::Log { text: "x".to_owned() }).unwrap();
    assert_eq!(joiner.next(), Ok(Some(Joined::Message(GuestMessage::Log { text: "n2: x".to_owned() }))));
    joiner.push(1, phase(Phase::Attach)).unwrap();
    assert_eq!(joiner.next(), Ok(Some(Joined::Message(phase(Phase::Attach)))));
    assert_eq!(joiner.next(), Ok(None));
}

/// The failure is not joined while the other nodes wait for IOR.
#[test]
fn a_node_whose_agent_fails_while_others_measure_is_not_done() {
    let mut joiner = Joiner::new(&nodes());
    for at in 0..3 {
        joiner.push(at, phase(Phase::Workload)).unwrap();
    }
    joiner.push(1, GuestMessage::Failed { message: "stopped: by a signal".to_owned() }).unwrap();
    assert_eq!(joiner.next(), Ok(Some(Joined::Message(phase(Phase::Workload)))));
    assert_eq!(joiner.next(), Ok(None));
    assert!(!joiner.is_done(1));
    assert_eq!(joiner.last_words(1).as_deref(), Some("stopped: by a signal"));
    for at in 0..3 {
        joiner.push(at, GuestMessage::Done).unwrap();
        assert!(joiner.is_done(at));
    }
}

#[test]
fn a_run_that_one_node_refuses_is_refused_with_the_nodes_that_do() {
    let mut joiner = Joiner::new(&nodes());
    for at in [0, 2] {
        joiner.push(at, phase(Phase::Attach)).unwrap();
        joiner.push(at, phase(Phase::Workload)).unwrap();
    }
    joiner.push(1, phase(Phase::Attach)).unwrap();
    assert_eq!(joiner.next(), Ok(Some(Joined::Message(phase(Phase::Attach)))));
    joiner.push(1, refused("not permitted")).unwrap();
    // The others would wait for IOR for ever.
    assert_eq!((joiner.next(), joiner.left_alone()), (Ok(None), Some((RUN.to_owned(), vec![0, 2]))));
    for at in [0, 2] {
        joiner.push(at, failed("ended")).unwrap();
    }
    match joiner.next() {
        Ok(Some(Joined::Together(JointReport::RunEnded(RunTogether { run, outcome, nodes })))) => {
            let RunOutcome::Refused(refusal) = outcome else { panic!("{outcome:?}") };
            assert_eq!((run.as_str(), nodes.len()), (RUN, 0));
            assert_eq!(refusal.message, "not permitted (on 1 of 3 nodes: n2)");
        }
        other => panic!("{other:?}"),
    }
}

/// A node announces that it tears down before it reports that its workload failed.
#[test]
fn a_run_that_fails_on_one_node_leaves_the_others_alone() {
    let mut joiner = Joiner::new(&nodes());
    for at in 0..3 {
        joiner.push(at, phase(Phase::Workload)).unwrap();
    }
    joiner.push(2, phase(Phase::TearDown)).unwrap();
    joiner.push(2, failed("killed")).unwrap();
    assert_eq!(joiner.next(), Ok(None));
    assert_eq!(joiner.left_alone(), Some((RUN.to_owned(), vec![0, 1])));
    for at in 0..2 {
        joiner.push(at, phase(Phase::TearDown)).unwrap();
        joiner.push(at, failed("ended")).unwrap();
    }
    assert_eq!(joiner.left_alone(), None);
    match joiner.next() {
        Ok(Some(Joined::Together(JointReport::RunEnded(RunTogether { outcome, .. })))) => {
            let RunOutcome::Failed { message } = outcome else { panic!("{outcome:?}") };
            assert_eq!(message, "node n1: ended; node n2: ended; node n3: killed");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(joiner.next(), Ok(None));
}

/// IOR has ended on all nodes when one node has measured the run.
#[test]
fn a_run_that_one_node_has_measured_leaves_nobody_alone() {
    let mut joiner = Joiner::new(&nodes());
    joiner.push(0, phase(Phase::TearDown)).unwrap();
    joiner.push(0, ended(RunOutcome::Measured(Box::new(figures(1, MOUNT, 1, Vec::new()))))).unwrap();
    assert_eq!((joiner.next(), joiner.left_alone()), (Ok(None), None));
    for at in 1..3 {
        joiner.push(at, phase(Phase::TearDown)).unwrap();
    }
    assert_eq!(joiner.next(), Ok(Some(Joined::Message(phase(Phase::TearDown)))));
}

#[test]
fn refusals_of_all_nodes_are_named_once_or_each() {
    let message = |texts: [&str; 3]| match joined(texts.map(|text| vec![refused(text)])).pop() {
        Some(Ok(Joined::Together(JointReport::RunEnded(RunTogether { outcome, .. })))) => match outcome {
            RunOutcome::Refused(refusal) => refusal.message,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    assert_eq!(message(["no", "no", "no"]), "no (on all 3 nodes)");
    assert_eq!(message(["no", "never", "no"]), "no (on 2 of 3 nodes: n1, n3); never (on 1 of 3 nodes: n2)");
}

#[test]
fn figures_are_sums_with_the_summary_of_the_first_node() {
    let other = Device { major: 0, minor: 41 };
    let sent = [
        // Each node's mount has another device number, which belongs to another file system on the
        // next node.
        figures(1, MOUNT, 30, vec![row(1, MOUNT, 30, 400), row(1, other, 31, 40), row(9, MOUNT, 30, 4)]),
        figures(2, other, 31, vec![row(2, other, 31, 800), row(2, MOUNT, 30, 80)]),
        figures(3, MOUNT, 30, vec![row(3, MOUNT, 30, 1200), row(3, Device::UNKNOWN, 0, 12)]),
    ];
    let mut joiner = Joiner::new(&nodes());
    joiner.ran(vec![2, 2, 2], None);
    for (at, figures) in sent.into_iter().enumerate() {
        joiner.push(at, ended(RunOutcome::Measured(Box::new(figures)))).unwrap();
    }
    let Ok(Some(Joined::Together(JointReport::RunEnded(RunTogether { outcome, nodes, .. })))) = joiner.next() else {
        panic!("no run")
    };
    let RunOutcome::Measured(all) = outcome else { panic!("{outcome:?}") };
    assert_eq!((all.summary.as_str(), all.cgroup, all.whole.after.monotonic_ns), ("of cgroup 1", 1, 1000));
    let after = all.whole.after.tracer.unwrap();
    let rows: Vec<_> = after.rows.iter().map(|row| (row.cgroup, row.device, row.mount, row.totals.bytes)).collect();
    assert_eq!(rows, [(1, Device::UNKNOWN, 0, 12), (1, MOUNT, 30, 2400)]);
    assert_eq!(after.rows[1].latency, [0, 600]);
    // A loss that one node does not report is unknown for the sum.
    assert_eq!((after.losses.recursion_misses, after.losses.missed_probes), (Some(3), None));
    assert_eq!(all.whole.after.mountstats.unwrap().normal_written, 6);
    let of_nodes: Vec<_> = nodes.iter().map(|run| (run.node.as_str(), run.ranks, run.figures.cgroup)).collect();
    assert_eq!(of_nodes, [("n1", 2, 1), ("n2", 2, 2), ("n3", 2, 3)]);
    assert_eq!(nodes[0].figures.whole.after.tracer.as_ref().unwrap().rows.len(), 3);
    assert!(nodes.iter().all(|run| run.figures.summary.is_empty()));
}

#[test]
fn what_is_known_of_ior_explains_a_run_that_failed() {
    let mut joiner = Joiner::new(&nodes());
    joiner.ran(vec![0; 3], Some("IOR failed".to_owned()));
    for at in 0..3 {
        joiner.push(at, failed("exit status 3")).unwrap();
    }
    let Ok(Some(Joined::Together(JointReport::RunEnded(RunTogether { outcome, .. })))) = joiner.next() else {
        panic!("no run")
    };
    assert_eq!(outcome, RunOutcome::Failed { message: "IOR failed".to_owned() });
    // The next run has another failure.
    for at in 0..3 {
        joiner.push(at, failed(&format!("no space {at}"))).unwrap();
    }
    let Ok(Some(Joined::Together(JointReport::RunEnded(RunTogether { outcome, .. })))) = joiner.next() else {
        panic!("no run")
    };
    let message = "node n1: no space 0; node n2: no space 1; node n3: no space 2".to_owned();
    assert_eq!(outcome, RunOutcome::Failed { message });
}

#[test]
fn nodes_that_cannot_measure_are_all_named() {
    let fails = |text: &str| vec![GuestMessage::Failed { message: text.to_owned() }];
    let ready = vec![GuestMessage::Ready(Box::default())];
    let message = "node n1: no root; node n3: no mount".to_owned();
    assert_eq!(
        joined([fails("no root"), ready, fails("no mount")]),
        [Ok(Joined::Message(GuestMessage::Failed { message }))]
    );
}

#[test]
fn nodes_of_another_kernel_and_messages_that_differ_are_refused() {
    let ready = |release: &str| {
        vec![GuestMessage::Ready(Box::new(GuestFacts { kernel_release: release.to_owned(), ..GuestFacts::default() }))]
    };
    let only = |sent: [Vec<GuestMessage>; 3]| joined(sent).into_iter().next().unwrap();
    let error = only([ready("6.1"), ready("6.1"), ready("6.12")]).unwrap_err();
    assert!(error.contains("node n3 has the kernel 6.12"), "{error}");
    let Ok(Joined::Together(JointReport::Ready { nodes: all, .. })) = only([ready("6.1"), ready("6.1"), ready("6.1")])
    else {
        panic!("not ready")
    };
    assert_eq!(all.iter().map(|node| node.node.as_str()).collect::<Vec<_>>(), ["n1", "n2", "n3"]);
    let done = || vec![GuestMessage::Done];
    let error = only([done(), vec![phase(Phase::Attach)], done()]).unwrap_err();
    assert!(error.contains("node n2 sends a phase where the first one sends that all is done"), "{error}");
    let unsound = GuestMessage::Unsound { run: RUN.to_owned(), differences: vec!["a program is left".to_owned()] };
    let differences = vec!["node n2: a program is left".to_owned()];
    assert_eq!(
        joined([done(), vec![unsound], done()]),
        [Ok(Joined::Message(GuestMessage::Unsound { run: RUN.to_owned(), differences }))]
    );
}

#[test]
fn a_node_that_only_sends_is_stopped() {
    let mut joiner = Joiner::new(&nodes());
    let pushed = (0..=MOST_AHEAD).map(|_| joiner.push(1, phase(Phase::Attach))).collect::<Result<Vec<_>, _>>();
    assert!(pushed.unwrap_err().contains("node n2"));
}

proptest::proptest! {
    /// No message is joined twice, and no run that differs between nodes.
    #[test]
    fn any_messages_are_survived(sent in proptest::collection::vec((0..3usize, 0..6u8), 0..60)) {
        let mut joiner = Joiner::new(&nodes());
        let mut ended_runs = 0;
        for (at, kind) in sent {
            let message = match kind {
                0 => phase(Phase::Attach),
                1 => phase(Phase::Workload),
                2 => failed("x"),
                3 => refused("y"),
                4 => GuestMessage::Done,
                _ => ended(RunOutcome::Measured(Box::new(figures(at as u64 + 1, MOUNT, 30, Vec::new())))),
            };
            joiner.push(at, message).unwrap();
            while let Ok(Some(joined)) = joiner.next() {
                if let Joined::Together(JointReport::RunEnded(RunTogether { nodes, .. })) = joined {
                    ended_runs += 1;
                    proptest::prop_assert!(nodes.is_empty() || nodes.len() == 3);
                }
            }
        }
        proptest::prop_assert!(ended_runs <= 20);
    }
}

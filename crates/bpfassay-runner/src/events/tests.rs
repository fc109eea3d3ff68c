// SPDX-License-Identifier: MIT OR Apache-2.0
use std::sync::LazyLock;

use bpfassay_protocol::{Arch, ProbeConfiguration, probe::Probe};
use bpfassay_results::{FailureKind, RunFailure};
use bpfassay_study::{Available, Clock, Narrowing, WarmUp};

use super::*;

/// A plan of two targets with one boot of two runs each: the baseline and fexit.
pub(super) fn plan() -> Plan {
    let mut study = bpfassay_study::load("quick").unwrap();
    study.clock = Clock::Wall;
    study.design.rounds = 1;
    study.design.warm_up = WarmUp::Runs(0);
    study.design.control = false;
    let narrowing = Narrowing {
        archs: vec![Arch::X86_64],
        kernels: ["6.12", "7.2"].map(str::to_owned).into(),
        probes: vec![ProbeConfiguration::with_defaults(Probe::Fexit)],
        ..Narrowing::default()
    };
    bpfassay_study::expand(&study, &narrowing, &Available::default()).unwrap()
}

/// Ignores events. It has a command to repeat a cell, and none to open a shell.
struct Silent;

impl EventSink for Silent {
    fn event(&self, _: &Event) {}

    fn repeat(&self, cell: &str) -> Option<Vec<String>> {
        Some(vec![cell.to_owned()])
    }
}

/// The provenance of some machine.
fn provenance() -> &'static Provenance {
    static MADE: LazyLock<Provenance> = LazyLock::new(Provenance::default);
    &MADE
}

/// The first block of `plan` with `rounds` rounds.
fn with_rounds(plan: &Plan, rounds: u32) -> Block {
    let mut block = plan.blocks[0].clone();
    let first = std::mem::take(&mut block.runs);
    for round in 1..=rounds {
        block.runs.extend(first.iter().cloned().map(|mut run| {
            (run.round, run.spec.id) = (round, format!("{}_r{round}", run.spec.id));
            run
        }));
    }
    block
}

fn failed_run(block: &Block, index: usize) -> RunRecord {
    let failure = RunFailure { kind: FailureKind::Panic, phase: None, excerpt: Vec::new(), log: None, after: None };
    RunRecord::new(block, &block.runs[index], 1, 0, 1, Outcome::Failed(failure))
}

/// Returns the index of each run of `block` that gives rows, with the number of rounds in the rows
/// and of all rounds.
fn given(rounds: &mut Rounds<'_>, block: &Block, runs: std::ops::Range<usize>) -> Vec<(usize, u32, u32)> {
    let rows = runs.filter_map(|index| Some((index, rounds.take(&failed_run(block, index))?)));
    rows.map(|(index, event)| (index, event.rounds, event.of)).collect()
}

#[test]
fn the_rows_of_a_block_come_with_its_first_round_and_fill_up() {
    let plan = plan();
    let block = with_rounds(&plan, 9);
    let mut rounds = Rounds::new(&plan, provenance());
    rounds.begin(&[ToDo::fresh(block.clone()), ToDo::fresh(plan.blocks[1].clone())]);
    assert!(rounds.take(&failed_run(&block, 0)).is_none());
    assert!(rounds.take(&failed_run(&block, 0)).is_none(), "the same again");
    let event = rounds.take(&failed_run(&block, 1)).unwrap();
    let cells = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    let of_block = cells(block.runs[..2].iter().map(|run| run.cell.as_str()).collect());
    assert_eq!(cells(event.cells.iter().map(|cell| cell.cell.as_str()).collect()), of_block);
    assert_eq!((event.block.as_str(), event.rounds, event.of), (block.id.as_str(), 1, 9));
    // A round has two runs. There are rows at four rounds, at twice as many, and at the end.
    assert_eq!(given(&mut rounds, &block, 2..17), [(7, 4, 9), (15, 8, 9)]);
    assert_eq!(rounds.take(&failed_run(&block, 17)).unwrap().rounds, 9);
    assert!(rounds.take(&failed_run(&block, 17)).is_none(), "recorded once more");
}

#[test]
fn replicates_add_to_the_rows_of_the_first_when_they_end() {
    let plan = plan();
    let block = with_rounds(&plan, 3);
    let mut replicate = block.clone();
    (replicate.id, replicate.replicate) = ("replicate".to_owned(), 2);
    replicate.runs.iter_mut().for_each(|run| run.spec.id.push_str("_2"));
    let mut rounds = Rounds::new(&plan, provenance());
    rounds.begin(&[&block, &replicate].map(|block| ToDo::fresh(block.clone())));
    assert_eq!(given(&mut rounds, &block, 0..6), [(1, 1, 6), (5, 3, 6)]);
    assert_eq!(given(&mut rounds, &replicate, 0..6), [(5, 6, 6)]);
}

#[test]
fn rounds_of_a_boot_that_is_repeated_do_not_count() {
    let plan = plan();
    let block = with_rounds(&plan, 2);
    let mut rounds = Rounds::new(&plan, provenance());
    rounds.begin(&[ToDo::fresh(block.clone())]);
    assert_eq!(given(&mut rounds, &block, 0..3), [(1, 1, 2)]);
    let ids: Vec<String> = block.runs.iter().map(|run| run.spec.id.clone()).collect();
    rounds.again(&block.id, &ids);
    // The last run alone completes nothing, although the others had ended before.
    assert_eq!(given(&mut rounds, &block, 3..4), []);
    assert_eq!(given(&mut rounds, &block, 0..3), [(2, 2, 2)]);
}

#[test]
fn rounds_that_are_measured_already_are_not_waited_for() {
    let plan = plan();
    let block = with_rounds(&plan, 2);
    let mut todo = ToDo::fresh(block.clone());
    todo.past.settled.insert(block.runs[1].spec.id.clone());
    let mut rounds = Rounds::new(&plan, provenance());
    rounds.begin(&[todo]);
    assert_eq!(given(&mut rounds, &block, 0..1), []);
    assert_eq!(given(&mut rounds, &block, 2..4), [(3, 1, 1)]);
}

/// An observer of all blocks of `plan`, one after the other.
fn observer(plan: &Plan) -> EventObserver<'_> {
    let blocks: Vec<_> = plan.blocks.iter().cloned().map(ToDo::fresh).collect();
    let observer = EventObserver::new(plan, provenance(), &Silent);
    observer.progress(&Happening::Started { blocks: &blocks, slots: NonZeroU32::MIN, directory: Path::new("out") });
    observer
}

#[test]
fn a_failed_run_names_its_log_and_what_does_it_again() {
    let plan = plan();
    let observer = observer(&plan);
    let block = &plan.blocks[1];
    let failure = RunFailure {
        kind: FailureKind::Panic,
        phase: None,
        excerpt: vec!["Kernel panic - not syncing".to_owned()],
        log: Some("logs/one.log".to_owned()),
        after: None,
    };
    let record = RunRecord::new(block, &block.runs[0], 1, 0, 1500, Outcome::Failed(failure));
    let ended = observer.run_ended(&record);
    assert_eq!((ended.outcome, ended.is_expected, ended.done, ended.of), (Ending::Failed, false, 1, 4));
    assert_eq!(ended.message.unwrap(), "kernel panic: Kernel panic - not syncing");
    assert_eq!(ended.log.unwrap(), Path::new("out/logs/one.log"));
    assert_eq!((ended.repeat, ended.shell), (Some(vec![block.runs[0].cell.clone()]), None));
    assert_eq!(ended.seconds_left, Some(1.5 * 3.0));
    assert_eq!((ended.cells_done, ended.cells_of), (1, 4));
}

/// A run that is booted again ends again, and is counted once.
#[test]
fn runs_that_are_done_again_are_counted_once() {
    let plan = plan();
    let observer = observer(&plan);
    let block = &plan.blocks[0];
    let host = RunFailure { kind: FailureKind::Host, phase: None, excerpt: Vec::new(), log: None, after: None };
    let record = |run: usize| RunRecord::new(block, &block.runs[run], 1, 0, 1500, Outcome::Failed(host.clone()));
    let counts = |ended: RunEnded| (ended.done, ended.of, ended.cells_done, ended.seconds_left);
    assert_eq!(counts(observer.run_ended(&record(0))), (1, 4, 1, Some(4.5)));
    // The run is recorded once more after it had ended.
    assert_eq!(counts(observer.run_ended(&record(0))), (1, 4, 1, Some(4.5)));
    let ids: Vec<String> = block.runs.iter().map(|run| run.spec.id.clone()).collect();
    observer.begun_again(block, &ids);
    assert_eq!(counts(observer.run_ended(&record(1))), (1, 4, 1, Some(4.5)));
    assert_eq!(counts(observer.run_ended(&record(0))), (2, 4, 2, Some(3.0)));
}

/// Keeps the kind of each event, and whether the event belongs to a reused run.
#[derive(Default)]
struct Kinds(Mutex<Vec<(String, bool)>>);

impl EventSink for Kinds {
    fn event(&self, event: &Event) {
        let kind = serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned();
        let is_reused = matches!(event, Event::RunEnded(ended) if ended.reused);
        self.0.lock().unwrap().push((kind, is_reused));
    }
}

#[test]
fn blocks_out_of_a_store_are_reported_as_such_and_without_rows() {
    let plan = plan();
    let sink = Kinds::default();
    let observer = EventObserver::new(&plan, provenance(), &sink);
    let blocks: Vec<ToDo> = plan.blocks.iter().cloned().map(ToDo::fresh).collect();
    let (reused, measured) = (&plan.blocks[0], &plan.blocks[1]);
    observer.progress(&Happening::Started { blocks: &blocks, slots: NonZeroU32::MIN, directory: Path::new("out") });
    let started = |block: &Block, reused: bool| bpfassay_results::BlockStarted {
        block: block.id.clone(),
        boot: 1,
        attempt: 1,
        at_unix_ms: 7,
        qemu: Vec::new(),
        log: None,
        runs: block.runs.iter().map(|run| run.spec.id.clone()).collect(),
        confirming: None,
        reused: reused.then(|| bpfassay_results::Reused {
            key: "k".to_owned(),
            store: "s".to_owned(),
            host: bpfassay_results::provenance::HostFacts::default(),
        }),
    };
    observer.progress(&Happening::Reused(reused, &started(reused, true)));
    (0..2).for_each(|run| observer.progress(&Happening::RunEnded(&failed_run(reused, run))));
    observer.progress(&Happening::Booting(measured, &started(measured, false)));
    (0..2).for_each(|run| observer.progress(&Happening::RunEnded(&failed_run(measured, run))));
    let seen = sink.0.lock().unwrap().clone();
    let seen: Vec<(&str, bool)> = seen.iter().map(|(kind, reused)| (kind.as_str(), *reused)).collect();
    let runs = |reused| [("run_ended", reused); 2];
    let expected = [
        &[("started", false), ("reused", false)],
        &runs(true)[..],
        &[("booting", false)],
        &runs(false),
        &[("rows", false)],
    ];
    assert_eq!(seen, expected.concat());
}

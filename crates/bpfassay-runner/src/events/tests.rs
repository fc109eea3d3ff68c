// SPDX-License-Identifier: MIT OR Apache-2.0
use std::sync::LazyLock;

use bpfassay_protocol::{Arch, ProbeConfiguration, probe::Probe};
use bpfassay_results::{FailureKind, RunFailure};
use bpfassay_study::{Available, Clock, Narrowing, WarmUp};

use super::*;

/// Two targets, each with one boot of two runs: the baseline and fexit.
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

/// Takes no event, and has a command to repeat a cell and none to open a shell.
struct Silent;

impl EventSink for Silent {
    fn event(&self, _: &Event) {}

    fn repeat(&self, cell: &str) -> Option<Vec<String>> {
        Some(vec![cell.to_owned()])
    }
}

/// Some machine's.
fn provenance() -> &'static Provenance {
    static MADE: LazyLock<Provenance> = LazyLock::new(Provenance::default);
    &MADE
}

#[test]
fn the_rows_of_a_block_come_with_its_first_round_and_only_once() {
    let mut plan = plan();
    let block = plan.blocks[0].clone();
    // A second round, and a second replicate.
    let again = block.runs.iter().map(|run| {
        let mut run = run.clone();
        (run.round, run.spec.id) = (2, format!("{}_r2", run.spec.id));
        run
    });
    plan.blocks[0].runs.extend(again.collect::<Vec<_>>());
    let mut replicate = block.clone();
    (replicate.id, replicate.replicate) = ("replicate".to_owned(), 2);
    replicate.runs.iter_mut().for_each(|run| run.spec.id.push_str("_2"));
    plan.blocks.push(replicate.clone());

    let mut rounds = FirstRounds::new(&plan, provenance());
    let record = |block: &Block, index: usize| {
        let failure = RunFailure { kind: FailureKind::Panic, phase: None, excerpt: Vec::new(), log: None, after: None };
        RunRecord::new(block, &block.runs[index], 1, 0, 1, Outcome::Failed(failure))
    };
    let first = plan.blocks[0].clone();
    assert_eq!(rounds.take(&record(&first, 0)), None);
    assert_eq!(rounds.take(&record(&first, 0)), None, "the same again");
    let results = rounds.take(&record(&first, 1)).unwrap();
    let cells: Vec<&str> = results.cells.iter().map(|cell| cell.cell.as_str()).collect();
    let of_block: Vec<&str> = first.runs[..2].iter().map(|run| run.cell.as_str()).collect();
    assert_eq!(cells.len(), 2);
    assert!(of_block.iter().all(|cell| cells.contains(cell)), "{cells:?}");
    let event = rounds.event(&first.id, &results);
    assert_eq!((event.rounds, event.of, event.cells.len()), (1, 2, 2));
    for index in 2..4 {
        assert_eq!(rounds.take(&record(&first, index)), None, "a further round");
    }
    for index in 0..2 {
        assert_eq!(rounds.take(&record(&replicate, index)), None, "a further replicate");
    }
}

/// An observer of all of `plan`, one block after the other.
fn observer(plan: &Plan) -> EventObserver<'_> {
    let blocks: Vec<_> = plan.blocks.iter().cloned().map(ToDo::fresh).collect();
    let observer = EventObserver::new(plan, provenance(), &Silent);
    observer.progress(&Progress::Started { blocks: &blocks, slots: NonZeroU32::MIN, directory: Path::new("out") });
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

/// What is booted again ends again, and is counted once.
#[test]
fn runs_that_are_done_again_are_counted_once() {
    let plan = plan();
    let observer = observer(&plan);
    let block = &plan.blocks[0];
    let host = RunFailure { kind: FailureKind::Host, phase: None, excerpt: Vec::new(), log: None, after: None };
    let record = |run: usize| RunRecord::new(block, &block.runs[run], 1, 0, 1500, Outcome::Failed(host.clone()));
    let counts = |ended: RunEnded| (ended.done, ended.of, ended.cells_done, ended.seconds_left);
    assert_eq!(counts(observer.run_ended(&record(0))), (1, 4, 1, Some(4.5)));
    // Recorded once more, after it had ended.
    assert_eq!(counts(observer.run_ended(&record(0))), (1, 4, 1, Some(4.5)));
    let ids: Vec<String> = block.runs.iter().map(|run| run.spec.id.clone()).collect();
    observer.begun_again(block, &ids);
    assert_eq!(counts(observer.run_ended(&record(1))), (1, 4, 1, Some(4.5)));
    assert_eq!(counts(observer.run_ended(&record(0))), (2, 4, 2, Some(3.0)));
}

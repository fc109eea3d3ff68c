// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests all rules together, against made-up guests, host failures and interruptions.

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_protocol::tracer_messages::{Refusal, Step};
use bpfassay_results::{
    Again, BlockEnded, BlockStarted, GuestReady, JOURNAL_VERSION, JournalContents, JournalEntry, JournalHeader,
    Outcome, Provenance,
};
use proptest::prelude::*;

use super::*;

/// The effect of a made-up tool on its guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    None,
    /// The guest dies during the run.
    InFlight,
    /// The guest dies before the next run begins.
    Between,
    /// The guest dies during the next run.
    DuringNext,
    /// The agent finds the guest changed.
    Unsound,
}

/// Plays a made-up guest that executes `plan`. Returns what is seen and how the guest ends.
fn guest(plan: &BootPlan, harm: &BTreeMap<String, Harm>) -> (ObservedBoot, BootEnd) {
    let mut pending = Harm::None;
    for (at, run) in plan.runs.iter().enumerate() {
        match pending {
            Harm::Between => return (seen(at, false), panicked()),
            Harm::DuringNext => return (seen(at, true), panicked()),
            Harm::Unsound => {
                let end = BootEnd::Unsound {
                    run: id(plan, at - 1),
                    failure: failure(FailureKind::Unsound, "changed"),
                    at_ms: 130,
                };
                return (seen(at, false), end);
            }
            Harm::None | Harm::InFlight => {}
        }
        pending = harm.get(&run.spec.id).copied().unwrap_or(Harm::None);
        if pending == Harm::InFlight {
            return (seen(at, true), panicked());
        }
    }
    if pending == Harm::None {
        return (ObservedBoot { done: true, ..seen(plan.runs.len(), false) }, BootEnd::Done);
    }
    (seen(plan.runs.len(), false), panicked())
}

/// Disturbances that do not come from the guest. They must change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    None,
    Host,
    Interrupted,
    /// SIGKILL: nothing is written after this many entries of the boot.
    Killed(usize),
}

/// The outcome of a block, and the number of its boots. A failed run has its kind of failure. Any
/// other run has the runs of the boot that it was measured in, which determine its figures.
type Outcomes = (BTreeMap<String, (Option<FailureKind>, Vec<String>)>, usize);

/// Executes the first block of `plan` through a journal, with one disturbance per boot.
fn done(plan: &Plan, harm: &BTreeMap<String, Harm>, disturbances: &[Disturbance]) -> Outcomes {
    let block = &plan.blocks[0];
    let mut contents = JournalContents { header: header(plan), entries: Vec::new(), torn: None, digest: None };
    let mut boots = 0;
    let to_do =
        |contents: &JournalContents| contents.to_do(Again::Host).into_iter().find(|todo| todo.block.id == block.id);
    'process: while let Some(todo) = to_do(&contents) {
        let mut attempt = Attempt::new(&todo);
        while let Some((boot, _)) = attempt.next() {
            let disturbance = disturbances.get(boots).copied().unwrap_or(Disturbance::None);
            boots += 1;
            assert!(boots < 100, "it does not come to an end");
            let (seen, end) = match (disturbance, guest(&boot, harm)) {
                (Disturbance::Host, (seen, _)) => (seen, host()),
                (Disturbance::Interrupted, (seen, _)) => (seen, BootEnd::Interrupted),
                (_, came) => came,
            };
            let conclusion = attempt.ended(&boot, &seen, &end, NOW);
            let mut entries = vec![
                JournalEntry::BlockStarted(Box::new(BlockStarted {
                    block: block.id.clone(),
                    boot: boot.boot,
                    attempt: boot.attempt,
                    at_unix_ms: 0,
                    qemu: Vec::new(),
                    log: None,
                    runs: boot.ids(),
                    confirming: boot.confirming.clone(),
                    reused: None,
                })),
                JournalEntry::GuestReady(Box::new(GuestReady {
                    block: block.id.clone(),
                    boot: boot.boot,
                    ready_after_ms: 1,
                    facts: Default::default(),
                    nodes: Vec::new(),
                })),
            ];
            let measured = boot.runs.iter().take(seen.ended()).filter(|_| boot.confirming.is_none());
            entries.extend(measured.map(|run| {
                let outcome = Outcome::Refused(refusal());
                JournalEntry::Run(Box::new(RunRecord::new(block, run, boot.boot, 0, 1, outcome)))
            }));
            entries.extend(conclusion.failed.iter().map(|failed| JournalEntry::Run(Box::new(failed.record(block)))));
            entries.push(JournalEntry::BlockEnded(Box::new(BlockEnded {
                counts: None,
                code_coverage: None,
                block: block.id.clone(),
                boot: boot.boot,
                at_unix_ms: 0,
                failure: conclusion.failure.clone(),
                notes: Vec::new(),
                verdict: conclusion.verdict.clone(),
                settled: conclusion.settled(),
            })));
            if let Disturbance::Killed(at) = disturbance {
                entries.truncate(at % (entries.len() + 1));
                contents.entries.extend(entries);
                continue 'process;
            }
            contents.entries.extend(entries);
            if disturbance == Disturbance::Interrupted {
                continue 'process;
            }
        }
    }
    let runs_of = |boot: u32| {
        let mut started = contents.entries.iter().filter_map(|entry| match entry {
            JournalEntry::BlockStarted(started) if started.boot == boot && started.confirming.is_none() => {
                Some(started)
            }
            _ => None,
        });
        started.next_back().map(|started| started.runs.clone()).unwrap_or_default()
    };
    let came = contents.records().into_iter().map(|(run, record)| {
        let came = match &record.outcome {
            Outcome::Failed(failure) => (Some(failure.kind), Vec::new()),
            _ => (None, runs_of(record.boot)),
        };
        (run.to_owned(), came)
    });
    (came.collect(), boots)
}

fn refusal() -> Refusal {
    Refusal::new(Step::Load, String::new())
}

fn header(plan: &Plan) -> JournalHeader {
    JournalHeader {
        journal: JOURNAL_VERSION,
        started_unix_ms: 0,
        plan: plan.clone(),
        provenance: Provenance::default(),
    }
}

fn harms() -> impl Strategy<Value = Harm> {
    prop_oneof![
        6 => Just(Harm::None),
        1 => Just(Harm::InFlight),
        1 => Just(Harm::Between),
        1 => Just(Harm::DuringNext),
        1 => Just(Harm::Unsound),
    ]
}

fn disturbances() -> impl Strategy<Value = Disturbance> {
    prop_oneof![
        4 => Just(Disturbance::None),
        // Three in a row would leave the block to be resumed, which another test covers.
        1 => Just(Disturbance::Host),
        1 => Just(Disturbance::Interrupted),
        3 => any::<usize>().prop_map(Disturbance::Killed),
    ]
}

/// Assigns `harms` to the tool runs of the first block.
fn world(plan: &Plan, harms: &[Harm]) -> BTreeMap<String, Harm> {
    let tools = plan.blocks[0].runs.iter().filter(|run| is_tool_run(run));
    tools.map(|run| run.spec.id.clone()).zip(harms.iter().copied()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// However many tools do harm, the block ends and every run has one outcome. Only harmful runs
    /// fail, and runs of their cell that are not tried.
    #[test]
    fn every_run_comes_to_one_end_and_only_the_guilty_fail(rounds in 1..4_u32, harms in prop::collection::vec(harms(), 9)) {
        let plan = plan(rounds, 1);
        let world = world(&plan, &harms);
        let (came, boots) = done(&plan, &world, &[]);
        let block = &plan.blocks[0];
        let tools = block.runs.iter().filter(|run| is_tool_run(run)).count();
        prop_assert!(boots <= 2 * tools + 1, "{boots} boots");
        prop_assert_eq!(came.keys().collect::<BTreeSet<_>>(), block.runs.iter().map(|run| &run.spec.id).collect());
        let is_blamed = |run: &PlannedRun| world.get(&run.spec.id).is_some_and(|harm| *harm != Harm::None);
        for run in &block.runs {
            let (failed, measured_with) = &came[&run.spec.id];
            let like = block.runs.iter().filter(|other| other.cell == run.cell && is_blamed(other)).count();
            match failed {
                None => {
                    prop_assert!(!is_blamed(run), "{} got away", run.spec.id);
                    prop_assert!(measured_with.iter().all(|with| came[with].0.is_none()), "measured beside one that failed");
                }
                Some(FailureKind::NotTried) => prop_assert!(like >= MOST_BLAMED, "{} was to be tried", run.spec.id),
                Some(_) => prop_assert!(is_blamed(run), "{} is innocent", run.spec.id),
            }
        }
    }

    /// Host failures, Ctrl-C and SIGKILL at any entry of the journal change neither an outcome nor
    /// the runs that a run was measured with.
    #[test]
    fn resumed_is_uninterrupted(
        harms in prop::collection::vec(harms(), 9),
        disturbances in prop::collection::vec(disturbances(), 0..12),
    ) {
        let disturbances: Vec<Disturbance> = disturbances
            .iter()
            .enumerate()
            .map(|(at, &what)| if what == Disturbance::Host && at % 2 == 1 { Disturbance::None } else { what })
            .collect();
        let plan = plan(3, 1);
        let world = world(&plan, &harms);
        prop_assert_eq!(done(&plan, &world, &disturbances).0, done(&plan, &world, &[]).0);
    }
}

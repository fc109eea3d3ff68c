// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole runs from a store, and a series of kernels that grows.

use std::{num::NonZeroU32, sync::Mutex, time::Instant};

use bpfassay_results::{
    BlockEnded, BlockStarted, BootVerdict, GuestReady, JOURNAL_VERSION, Journal, JournalHeader, Results, ToDo, file,
    fingerprint,
};
use bpfassay_study::Clock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    blocks::pool::{self, RunnerConfig},
    boot::tally::PoolSummary,
    observer::{Happening, Observer},
    sessions::work::{self, PlannedWork},
};

/// Notes which blocks were reused and which were booted.
#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Observer for Seen {
    fn progress(&self, progress: &Happening<'_>) {
        let line = match progress {
            Happening::Reused(block, _) => format!("reused {}", block.id),
            Happening::Booting(block, _) => format!("booted {}", block.id),
            _ => return,
        };
        self.0.lock().unwrap().push(line);
    }
}

/// Runs `plan` in `directory` with the store `with`, where nothing can be booted. Returns the
/// summary and the observed events.
async fn run(directory: &Path, plan: &Plan, provenance: &Provenance, with: &BlockReuse) -> (PoolSummary, Vec<String>) {
    let PlannedWork { journal, blocks, .. } = PlannedWork::begin(plan, Some(directory), provenance.clone()).unwrap();
    let (sender, host_setup) = watch::channel(Arc::new(host_setup(plan)));
    drop(sender);
    let provenance = shared(provenance);
    let config = RunnerConfig {
        study: &plan.study,
        blocks,
        never_ready: Vec::new(),
        host_setup,
        slots: NonZeroU32::MIN,
        reuse: Some(RunStore { with, plan, provenance: &provenance }),
    };
    let seen = Seen::default();
    let none = async |_: &crate::boot::run_context::RunContext<'_>| Ok(Vec::new());
    let summary = pool::execute(config, none, journal, &seen, &CancellationToken::new()).await.unwrap();
    (summary, seen.0.into_inner().unwrap())
}

/// The results without the journal's times and logs.
fn figures(results: &Results) -> (String, Vec<serde_json::Value>) {
    let cells = results.cells.iter().map(|cell| serde_json::to_value(cell).unwrap());
    (fingerprint(results.runs.iter().map(|run| &run.record)), cells.collect())
}

#[tokio::test]
async fn a_run_out_of_a_store_has_the_figures_of_the_run_that_measured_it() {
    let folder = tempfile::tempdir().unwrap();
    let plan = whole_plan();
    let contents = journal(&plan, "a");
    let store = new_store(folder.path());
    let keys = keep_all(&store, &contents);
    let directory = folder.path().join("results");
    let (summary, seen) = run(&directory, &plan, &contents.header.provenance, &reuse(store)).await;
    assert_eq!((summary.reused, summary.failed), (plan.blocks.len(), 0));
    assert!(seen.iter().all(|line| line.starts_with("reused ")), "{seen:?}");

    let measured = bpfassay_report::derive(&contents);
    let (results, _) = work::conclude(&directory).unwrap();
    assert_eq!(figures(&results), figures(&measured));
    assert_eq!(results.boots.len(), keys.len());
    for boot in &results.boots {
        let reused = boot.reused.as_ref().unwrap();
        assert!(keys.iter().any(|key| key.to_string() == reused.key));
        assert_eq!(
            (reused.store.as_str(), reused.host.machine.as_str()),
            (folder.path().join("a/store").to_str().unwrap(), "a")
        );
        assert_eq!((boot.started_unix_ms, &boot.log), (2000, &None));
    }
    let note = results.notes.iter().find(|note| note.contains("are reused from the store")).unwrap();
    assert!(note.starts_with(&format!("{0} of {0} boots were measured before", keys.len())), "{note}");
    assert!(note.ends_with(": `boots` has when and on which host"), "{note}");
}

#[tokio::test]
async fn a_run_out_of_reproducible_entries_has_the_same_figures_and_says_that_their_host_is_not_known() {
    let folder = tempfile::tempdir().unwrap();
    let plan = whole_plan();
    let contents = journal(&plan, "a");
    let with = BlockReuse { reproducible: true, ..reuse(new_store(folder.path())) };
    let provenance = shared(&contents.header.provenance);
    for block in &plan.blocks {
        done(RunStore { with: &with, plan: &plan, provenance: &provenance }.keep(block, of_block(&contents, block)));
    }
    let directory = folder.path().join("results");
    let (summary, seen) = run(&directory, &plan, &contents.header.provenance, &with).await;
    assert_eq!((summary.reused, summary.failed), (plan.blocks.len(), 0), "{seen:?}");
    let (results, _) = work::conclude(&directory).unwrap();
    assert_eq!(figures(&results), figures(&bpfassay_report::derive(&contents)));
    let note = results.notes.iter().find(|note| note.contains("are reused from the store")).unwrap();
    assert!(note.ends_with(": the store does not have of all of them when and on which host"), "{note}");
}

#[test]
fn nothing_is_looked_up_that_is_to_be_measured() {
    let folder = tempfile::tempdir().unwrap();
    let plan = whole_plan();
    let contents = journal(&plan, "a");
    let store = new_store(folder.path());
    keep_all(&store, &contents);
    let (setup, provenance) = (host_setup(&plan), shared(&contents.header.provenance));
    let look_up = |with: &BlockReuse, todo: &ToDo| {
        done(RunStore { with, plan: &plan, provenance: &provenance }.look_up(&setup, todo)).is_some()
    };
    let fresh = ToDo::fresh(plan.blocks[0].clone());
    let with = reuse(store);
    assert!(look_up(&with, &fresh));
    let past = |change: fn(&mut ToDo)| {
        let mut todo = fresh.clone();
        change(&mut todo);
        todo
    };
    assert!(look_up(&with, &past(|todo| todo.past.boots = 3)), "an interrupted boot");
    assert!(!look_up(&with, &past(|todo| todo.past.attempt = 2)), "--again failed");
    let settled = past(|todo| todo.past.settled.extend([todo.block.runs[0].spec.id.clone()]));
    assert!(!look_up(&with, &settled), "a run that was to blame");
    let is_for = |with: &BlockReuse, clock| {
        let mut plan = plan.clone();
        plan.study.clock = clock;
        with.is_for(&plan)
    };
    assert!(is_for(&with, Clock::Instructions) && !is_for(&with, Clock::Wall));
    assert!(is_for(
        &BlockReuse { wall: true, ..reuse(BlockStore::existing(&place(with.store.path())).unwrap()) },
        Clock::Wall
    ));
    assert!(!look_up(&BlockReuse { fresh: true, ..with }, &fresh), "--fresh");
}

#[test]
fn the_boots_of_a_resumed_run_go_on_with_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let plan = whole_plan();
    let contents = journal(&plan, "a");
    let store = new_store(folder.path());
    keep_all(&store, &contents);
    let (setup, provenance) = (host_setup(&plan), shared(&contents.header.provenance));
    let with = reuse(store);
    let mut todo = ToDo::fresh(plan.blocks[0].clone());
    todo.past.boots = 3;
    let entries = done(RunStore { with: &with, plan: &plan, provenance: &provenance }.look_up(&setup, &todo)).unwrap();
    // The journal accepts them after the boots that were interrupted.
    let mut begun = contents.clone();
    begun.entries = of_block(&contents, &todo.block)[..2].to_vec();
    for entry in &mut begun.entries {
        match entry {
            JournalEntry::BlockStarted(started) => started.boot = 3,
            JournalEntry::GuestReady(ready) => ready.boot = 3,
            _ => unreachable!(),
        }
    }
    begun.entries.extend(entries);
    let directory = folder.path().join("results");
    Journal::create(&directory, &begun.header).unwrap().append_all(&begun.entries).unwrap();
    let read = JournalContents::read(&directory).unwrap();
    let left = read.to_do(bpfassay_results::Again::Nothing);
    assert!(left.iter().all(|left| left.block.id != todo.block.id) && left.len() == plan.blocks.len() - 1);
}

/// The journal of real results, with the command lines of [`host_setup`]. Results do not have the
/// counts of QEMU's plugin.
fn journal_of(results: Results) -> JournalContents {
    let Results { plan, provenance, boots, runs, started_unix_ms, .. } = results;
    let mut entries = Vec::new();
    for boot in boots {
        let (block, number) = (boot.block, boot.boot);
        let of_boot = runs.iter().filter(|run| run.record.block == block && run.record.boot == number);
        entries.push(JournalEntry::BlockStarted(Box::new(BlockStarted {
            block: block.clone(),
            boot: number,
            attempt: 1,
            at_unix_ms: boot.started_unix_ms,
            qemu: boot.qemu,
            log: boot.log,
            runs: of_boot.clone().map(|run| run.record.run.clone()).collect(),
            confirming: None,
            reused: None,
        })));
        entries.push(JournalEntry::GuestReady(Box::new(GuestReady {
            block: block.clone(),
            boot: number,
            ready_after_ms: boot.ready_after_ms.value().copied().unwrap(),
            facts: boot.facts.unwrap(),
            nodes: boot.nodes,
        })));
        entries.extend(of_boot.map(|run| JournalEntry::Run(run.record.clone())));
        entries.push(JournalEntry::BlockEnded(Box::new(BlockEnded {
            block,
            boot: number,
            at_unix_ms: boot.started_unix_ms,
            failure: boot.failure,
            notes: boot.notes,
            counts: None,
            code_coverage: None,
            verdict: BootVerdict::Complete,
            settled: Vec::new(),
        })));
    }
    let header = JournalHeader { journal: JOURNAL_VERSION, started_unix_ms, plan, provenance: provenance[0].clone() };
    let mut contents = JournalContents { header, entries, torn: None, digest: None };
    let setup = host_setup(&contents.header.plan);
    give_commands(&mut contents, &setup);
    contents
}

/// Reports the published series from a store. One more build needs one more boot of each
/// configuration. The time limit leaves room for a debug build on a busy host.
#[tokio::test]
async fn a_series_out_of_a_store_is_reported_at_once_and_grows_by_a_block() {
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/kernel-series");
    let published = file::read(&published).unwrap();
    let wanted = fingerprint(published.runs.iter().map(|run| &run.record));
    let contents = journal_of(published);
    let plan = &contents.header.plan;
    assert!(plan.targets().len() >= 60, "{} builds", plan.targets().len());
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path());
    let keys = keep_all(&store, &contents);

    let directory = folder.path().join("results");
    let begun = Instant::now();
    let (summary, _) = run(&directory, plan, &contents.header.provenance, &reuse(store)).await;
    let (results, fingerprint) = work::conclude(&directory).unwrap();
    let page = bpfassay_report::render::text(&results, bpfassay_report::render::Style { width: None });
    let took = begun.elapsed();
    println!(
        "{} builds, {} boots out of the store in {took:?}; {} bytes of text",
        plan.targets().len(),
        keys.len(),
        page.len()
    );
    assert_eq!((summary.reused, fingerprint), (plan.blocks.len(), Some(wanted)));
    assert!(took.as_secs() < 30, "{took:?}");

    // Removing the blocks of one build makes it a build that the store does not know yet.
    let newest = plan.targets().last().copied().unwrap().clone();
    let store = BlockStore::existing(&place(&folder.path().join("a/store"))).unwrap();
    let of_newest = |block: &&Block| block.target == newest;
    for (_, key) in plan.blocks.iter().zip(&keys).filter(|(block, _)| of_newest(block)) {
        std::fs::remove_file(store.entry(key)).unwrap();
    }
    let (setup, provenance) = (host_setup(plan), shared(&contents.header.provenance));
    let with = reuse(store);
    let looked_up = RunStore { with: &with, plan, provenance: &provenance };
    let is_measured = |block: &&Block| done(looked_up.look_up(&setup, &ToDo::fresh((*block).clone()))).is_none();
    let left: Vec<&Block> = plan.blocks.iter().filter(is_measured).collect();
    assert!(left.iter().all(of_newest) && left.len() == 1, "{} boots", left.len());
}

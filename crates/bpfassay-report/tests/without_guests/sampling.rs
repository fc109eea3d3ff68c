// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequential sampling: which boots come next, when they are enough, and what the figures then
//! claim; warm-up and drift.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_protocol::{Arch, probe::Probe};
use bpfassay_report::{
    derive,
    render::{Style, text},
    to_do,
};
use bpfassay_results::{
    Again, BootVerdict, FailureKind, JournalContents, JournalEntry, Outcome, RunFailure, Sampled, SamplingEnd,
};
use bpfassay_stats::random::Generator;
use bpfassay_study::{Block, PlannedRun, Study, WarmUp};

use crate::common::{contents, figures, study};

/// Creates a study with up to 20 boots of one round; fexit costs 5 %, plus or minus `spread`.
fn sequential(until: &str) -> Study {
    let mut study = study(None, 1, 20);
    study.targets.retain(|target| target.arch == Arch::X86_64);
    study.probes.retain(|probe| probe.probe != Probe::Kprobe);
    study.design.until = Some(until.parse().unwrap());
    study
}

fn outcome(spread: f64) -> impl Fn(&Block, &PlannedRun) -> Outcome {
    move |block, run| {
        let mut generator = Generator::new(u64::from(block.replicate) * 8 + u64::from(run.control));
        let cost = if run.spec.probe.is_baseline() { 1.0 } else { 1.05 * (spread * generator.normal()).exp() };
        Outcome::Measured(Box::new(figures(run.spec.probe, 160.0 / cost, 320.0 / cost)))
    }
}

/// Does what remains to do, stage after stage, like `run`; returns the number of boots in each
/// stage.
fn carry_out(study: &Study, spread: f64) -> (JournalContents, Vec<usize>) {
    let whole = contents(study, outcome(spread));
    let mut so_far = JournalContents { entries: Vec::new(), ..whole.clone() };
    let mut stages = Vec::new();
    loop {
        let blocks = to_do(&so_far, Again::Nothing);
        if blocks.is_empty() {
            return (so_far, stages);
        }
        assert!(stages.len() < 20, "it does not come to an end");
        let is_of = |entry: &JournalEntry| {
            let block = match entry {
                JournalEntry::BlockStarted(started) => &started.block,
                JournalEntry::GuestReady(ready) => &ready.block,
                JournalEntry::Run(record) => &record.block,
                JournalEntry::BlockEnded(ended) => &ended.block,
                JournalEntry::Provisioned { .. } | JournalEntry::Resumed { .. } => return false,
            };
            blocks.iter().any(|next| next.block.id == *block)
        };
        so_far.entries.extend(whole.entries.iter().filter(|entry| is_of(entry)).cloned());
        stages.push(blocks.len());
    }
}

fn only(contents: &JournalContents) -> Sampled {
    let sampling = derive(contents).sampling;
    assert_eq!(sampling.len(), 1, "{sampling:?}");
    sampling.into_iter().next().unwrap()
}

#[test]
fn narrow_intervals_stop_at_the_first_look() {
    let (contents, stages) = carry_out(&sequential("1%"), 0.0001);
    assert_eq!(stages, [3]);
    let results = derive(&contents);
    let sampled = only(&contents);
    assert_eq!((sampled.boots, sampled.most, sampled.end), (3, 20, Some(SamplingEnd::NarrowEnough)));
    assert!(sampled.widest.unwrap().within < 0.01);
    // The other 17 boots are not missing: they were never needed.
    assert!(results.notes.is_empty(), "{:?}", results.notes);
    assert!(results.cells.iter().all(|cell| cell.runs.planned == 3 && cell.runs.measured == 3));
    assert_eq!(results.plan, contents.header.plan);
    let shown = text(&results, Style::default());
    assert!(shown.contains("of at most 20 boots: stopped after 3: every interval is within 1%"), "{shown}");
}

#[test]
fn wide_intervals_go_on_look_after_look_to_the_last_boot() {
    let (contents, stages) = carry_out(&sequential("0.1%"), 0.05);
    // The looks are at 3, 5, 8, 12, 18 and 20 boots.
    assert_eq!(stages, [3, 2, 3, 4, 6, 2]);
    assert_eq!((only(&contents).boots, only(&contents).end), (20, Some(SamplingEnd::MostBoots)));
    let shown = text(&derive(&contents), Style::default());
    assert!(shown.contains("all boots done, and not every interval is within 0.1%"), "{shown}");
}

#[test]
fn the_interval_shown_pays_for_all_looks() {
    let (contents, _) = carry_out(&sequential("1%"), 0.005);
    let results = derive(&contents);
    let mut fixed = contents.clone();
    fixed.header.plan.study.design.until = None;
    let of = |results: &bpfassay_results::Results| {
        let cell = results.cells.iter().find(|cell| !cell.is_baseline()).unwrap();
        let estimate = cell.metrics.first().unwrap().overhead.value().unwrap().estimate;
        let interval = estimate.bounds.interval().unwrap();
        (estimate.value, estimate.n, interval.level, interval.upper - interval.lower)
    };
    let (sequential, plain) = (of(&results), of(&derive(&fixed)));
    assert_eq!((sequential.0, sequential.1, sequential.2), (plain.0, plain.1, 0.95));
    assert!(sequential.3 > 1.3 * plain.3, "{sequential:?} {plain:?}");
}

#[test]
fn an_interruption_between_two_looks_leaves_the_rest_of_the_stage() {
    let whole = contents(&sequential("1%"), outcome(0.0001));
    let second = whole.header.plan.blocks.get(1).unwrap().id.clone();
    let before = whole
        .entries
        .iter()
        .position(|entry| matches!(entry, JournalEntry::BlockStarted(started) if started.block == second))
        .unwrap();
    let interrupted = JournalContents { entries: whole.entries.get(..before).unwrap().to_vec(), ..whole.clone() };
    let left: Vec<u32> = to_do(&interrupted, Again::Host).iter().map(|todo| todo.block.replicate).collect();
    assert_eq!(left, [2, 3]);
    assert_eq!(only(&interrupted).end, None);
}

/// Provisional runs, and runs that the host failed, must not end sampling: their measurement could
/// show that more boots are needed.
#[test]
fn only_records_that_count_for_good_end_sampling() {
    let whole = contents(&sequential("1%"), outcome(0.0001));
    let third = whole.header.plan.blocks.get(2).unwrap().id.clone();
    let is_after = |entry: &JournalEntry| matches!(entry, JournalEntry::BlockEnded(ended) if ended.block == third);
    let end = whole.entries.iter().position(is_after).unwrap();
    let mut provisional = JournalContents { entries: whole.entries.get(..end).unwrap().to_vec(), ..whole.clone() };
    let replicates = |contents: &JournalContents, again| -> Vec<u32> {
        to_do(contents, again).iter().map(|todo| todo.block.replicate).collect()
    };
    assert_eq!(replicates(&provisional, Again::Nothing), [3]);
    let mut ended = whole.entries.get(end).unwrap().clone();
    if let JournalEntry::BlockEnded(ended) = &mut ended {
        ended.verdict = BootVerdict::Host;
        ended.settled = whole.header.plan.blocks.get(2).unwrap().runs.iter().map(|run| run.spec.id.clone()).collect();
    }
    for entry in provisional.entries.iter_mut() {
        if let JournalEntry::Run(record) = entry
            && record.block == third
        {
            record.outcome = Outcome::Failed(RunFailure {
                kind: FailureKind::Host,
                phase: None,
                excerpt: Vec::new(),
                log: None,
                after: None,
            });
        }
    }
    provisional.entries.push(ended);
    // The group waits for its third boot: nothing is left to do before the run is resumed.
    assert_eq!(replicates(&provisional, Again::Nothing), [0_u32; 0]);
    assert_eq!(replicates(&provisional, Again::Host), [3]);
}

#[test]
fn runs_that_warm_up_are_in_no_figure() {
    let mut warm = study(None, 2, 1);
    warm.targets.retain(|target| target.arch == Arch::X86_64);
    let cold = contents(&warm, outcome(0.01));
    warm.design.warm_up = WarmUp::Runs(2);
    let slow = |block: &Block, run: &PlannedRun| match run.warm_up {
        true => Outcome::Measured(Box::new(figures(run.spec.probe, 1.0, 1.0))),
        false => outcome(0.01)(block, run),
    };
    let warm = contents(&warm, slow);
    assert_eq!(warm.header.plan.runs().count(), cold.header.plan.runs().count() + 2);
    let (cold, warm) = (derive(&cold), derive(&warm));
    assert_eq!(warm.runs.iter().filter(|run| run.record.warm_up).count(), 2);
    assert_eq!(warm.cells, cold.cells);
}

#[test]
fn drift_of_the_baseline_is_reported() {
    let mut drifting = study(None, 8, 1);
    drifting.targets.retain(|target| target.arch == Arch::X86_64);
    drifting.clock = bpfassay_study::Clock::Instructions;
    let mut index = std::collections::BTreeMap::new();
    let plan = crate::common::plan(&drifting);
    for (number, (_, run)) in plan.runs().enumerate() {
        index.insert(run.spec.id.clone(), number as f64);
    }
    let falling = |rate: f64| {
        let results = derive(&contents(&drifting, |_, run| {
            let bandwidth = 160.0 * (1.0 - rate * index[&run.spec.id]);
            Outcome::Measured(Box::new(figures(run.spec.probe, bandwidth, 320.0)))
        }));
        text(&results, Style::default())
    };
    let shown = falling(0.001);
    assert!(shown.contains("drift: x86_64_6.1_w_nfs4.2_none, write: the baseline's bandwidth falls by"), "{shown}");
    assert!(!shown.contains("none, read: the baseline"), "{shown}");
    assert!(!falling(0.0).contains("drift:"));
}

#[test]
fn overheads_within_the_margin_are_reported_as_negligible() {
    let mut small = study(None, 1, 5);
    small.targets.retain(|target| target.arch == Arch::X86_64);
    small.design.margin = Some("1%".parse().unwrap());
    let results = derive(&contents(&small, |block, run| {
        let mut generator =
            Generator::new(u64::from(block.replicate) * 8 + u64::from(run.control) + u64::from(run.round));
        let cost = match run.spec.probe.probe {
            Probe::Fexit => 1.05,
            _ => (0.0005 * generator.normal()).exp(),
        };
        Outcome::Measured(Box::new(figures(run.spec.probe, 160.0 / cost, 320.0 / cost)))
    }));
    for cell in results.cells.iter().filter(|cell| !cell.is_baseline()) {
        for metric in &cell.metrics {
            let overhead = metric.overhead.value().unwrap();
            assert_eq!(overhead.negligible, Some(cell.probe.probe == Probe::Kprobe), "{}", cell.cell);
            // Boots that are all equal have no interval, and no detectable effect.
            let has_interval = overhead.estimate.bounds.interval().is_some();
            assert_eq!(overhead.detectable.is_some(), has_interval, "{overhead:?}");
            assert!(overhead.detectable.is_none_or(|ratio| (1.0..1.01).contains(&ratio)), "{overhead:?}");
        }
    }
    assert!(text(&results, Style::default()).contains(", negligible"));
}

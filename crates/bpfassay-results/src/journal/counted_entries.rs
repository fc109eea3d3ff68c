// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the entries of a journal that count: the record that counts for each run, whether it is
//! settled, and the progress of each block.

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_study::{Block, Plan};

use super::JournalContents;
use crate::{BlockEnded, BootVerdict, JournalEntry, Outcome, RunFailure, RunRecord};

/// The work to repeat on resumption, in addition to unfinished work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Again {
    /// Nothing.
    Nothing,
    /// Runs that failed because of the host.
    Host,
    /// Blocks with failed runs, whatever the reason. Earlier facts about them are dropped.
    Failed,
}

/// A block with work left, and the facts from earlier boots.
#[derive(Debug, Clone, PartialEq)]
pub struct ToDo {
    /// The block as planned.
    pub block: Block,
    /// Facts from earlier boots of the block.
    pub past: Past,
}

impl ToDo {
    /// Creates the entry of a block that was never booted.
    #[must_use]
    pub fn fresh(block: Block) -> Self {
        Self { block, past: Past::default() }
    }

    /// Returns the runs without a settled record, in order.
    pub fn open(&self) -> impl Iterator<Item = &bpfassay_study::PlannedRun> {
        self.block.runs.iter().filter(|run| !self.past.settled.contains(&run.spec.id))
    }
}

/// Facts about a block from its earlier boots.
#[derive(Debug, Clone, PartialEq)]
pub struct Past {
    /// Number of the last boot; 0 before the first.
    pub boots: u32,
    /// The current attempt, from 1.
    pub attempt: u32,
    /// Boots of the current attempt, in order.
    pub history: Vec<PastBoot>,
    /// Runs whose records are settled. They are not repeated.
    pub settled: BTreeSet<String>,
}

impl Default for Past {
    fn default() -> Self {
        Self { boots: 0, attempt: 1, history: Vec::new(), settled: BTreeSet::new() }
    }
}

impl Past {
    /// The failure over which the block was given up, if none of its guests was ever ready.
    #[must_use]
    pub fn never_ready(&self) -> Option<&RunFailure> {
        let ended = self.history.last()?.ended.as_ref()?;
        let is_given_up = matches!(ended.verdict, BootVerdict::Nobody) && !ended.settled.is_empty();
        ended.failure.as_ref().filter(|_| is_given_up && self.history.iter().all(|boot| !boot.ready))
    }
}

/// One boot of a block.
#[derive(Debug, Clone, PartialEq)]
pub struct PastBoot {
    /// Number of the boot, from 1.
    pub boot: u32,
    /// Runs of the boot.
    pub runs: Vec<String>,
    /// For a confirming boot: the suspected run.
    pub confirming: Option<String>,
    /// Whether the guest reported that it is ready.
    pub ready: bool,
    /// The end of the boot, without counts. `None` if bpfassay was killed before it was written.
    pub ended: Option<BlockEnded>,
}

/// The record that counts for a run.
#[derive(Debug, Clone, Copy)]
struct Stands<'a> {
    record: &'a RunRecord,
    settled: bool,
}

/// The entries of a journal that count.
#[derive(Debug, Default)]
pub struct CountedEntries<'a> {
    runs: BTreeMap<&'a str, Stands<'a>>,
    blocks: BTreeMap<&'a str, Past>,
    superseded: BTreeMap<&'a str, usize>,
}

impl<'a> CountedEntries<'a> {
    fn of(entries: &'a [JournalEntry]) -> Self {
        let mut standing = Self::default();
        // Runs of the open boot, by block.
        let mut open: BTreeMap<&str, &[String]> = BTreeMap::new();
        for entry in entries {
            match entry {
                JournalEntry::BlockStarted(started) => {
                    let past = standing.blocks.entry(&started.block).or_default();
                    past.boots = past.boots.max(started.boot);
                    if past.attempt != started.attempt {
                        past.attempt = started.attempt;
                        past.history.clear();
                    }
                    past.history.push(PastBoot {
                        boot: started.boot,
                        runs: started.runs.clone(),
                        confirming: started.confirming.clone(),
                        ready: false,
                        ended: None,
                    });
                    open.insert(&started.block, &started.runs);
                    if started.confirming.is_none() {
                        let gone = started.runs.iter().filter(|run| standing.runs.remove(run.as_str()).is_some());
                        let gone = gone.count();
                        if gone > 0 {
                            *standing.superseded.entry(&started.block).or_default() += gone;
                        }
                    }
                }
                JournalEntry::GuestReady(ready) => {
                    if let Some(boot) = standing.boot(&ready.block, ready.boot) {
                        boot.ready = true;
                    }
                }
                JournalEntry::Run(record) => {
                    // A record outside any boot is final: its run gets no boot.
                    let settled = !open.contains_key(record.block.as_str());
                    standing.runs.insert(&record.run, Stands { record, settled });
                }
                JournalEntry::BlockEnded(ended) => {
                    let runs = open.remove(ended.block.as_str()).unwrap_or_default();
                    let all = matches!(ended.verdict, BootVerdict::Complete).then_some(runs).unwrap_or_default();
                    for run in all.iter().chain(&ended.settled) {
                        if let Some(stands) = standing.runs.get_mut(run.as_str()) {
                            stands.settled = true;
                        }
                    }
                    if let Some(boot) = standing.boot(&ended.block, ended.boot) {
                        boot.ended = Some(outline(ended));
                    }
                }
                JournalEntry::Provisioned { .. } | JournalEntry::Resumed { .. } => {}
            }
        }
        standing
    }

    fn boot(&mut self, block: &str, number: u32) -> Option<&mut PastBoot> {
        self.blocks.get_mut(block)?.history.last_mut().filter(|boot| boot.boot == number)
    }

    /// The record that counts for `run`, provisional or settled.
    #[must_use]
    pub fn record(&self, run: &str) -> Option<&'a RunRecord> {
        self.runs.get(run).map(|stands| stands.record)
    }

    /// Whether the record of `run` is settled and not a host failure.
    #[must_use]
    pub fn is_final(&self, run: &str) -> bool {
        self.runs.get(run).is_some_and(|stands| stands.settled && !stands.record.is_failed_by_host())
    }

    /// All records that count, by run.
    #[must_use]
    pub fn records(&self) -> BTreeMap<&'a str, &'a RunRecord> {
        self.runs.iter().map(|(&run, stands)| (run, stands.record)).collect()
    }

    /// Number of records by block that a later boot of the block superseded.
    #[must_use]
    pub fn superseded(&self) -> &BTreeMap<&'a str, usize> {
        &self.superseded
    }

    /// Number of standing records that are not settled.
    #[must_use]
    pub fn provisional(&self) -> usize {
        self.runs.values().filter(|stands| !stands.settled).count()
    }

    /// The facts about `block`, with its settled runs.
    #[must_use]
    pub fn past(&self, block: &Block) -> Past {
        let mut past = self.blocks.get(block.id.as_str()).cloned().unwrap_or_default();
        let ids = block.runs.iter().map(|run| run.spec.id.as_str());
        past.settled = ids.filter(|run| self.runs.get(run).is_some_and(|s| s.settled)).map(str::to_owned).collect();
        past
    }

    /// The work left of `block`, if any.
    fn to_do(&self, block: &Block, again: Again) -> Option<ToDo> {
        let mut past = self.past(block);
        let records = || block.runs.iter().filter_map(|run| self.record(&run.spec.id));
        let is_failed = |record: &RunRecord| matches!(record.outcome, Outcome::Failed(_));
        if again == Again::Failed && records().any(is_failed) {
            // Boot numbers continue, everything else is dropped.
            if past.boots > 0 {
                past.attempt = past.attempt.saturating_add(1);
            }
            past.history.clear();
            past.settled.clear();
        } else if again >= Again::Host {
            past.settled.retain(|run| self.is_final(run));
        }
        (past.settled.len() < block.runs.len()).then(|| ToDo { block: block.clone(), past })
    }
}

/// Copies `ended` without the counts, which are large.
fn outline(ended: &BlockEnded) -> BlockEnded {
    BlockEnded {
        block: ended.block.clone(),
        boot: ended.boot,
        at_unix_ms: ended.at_unix_ms,
        failure: ended.failure.clone(),
        notes: ended.notes.clone(),
        counts: None,
        code_coverage: None,
        verdict: ended.verdict.clone(),
        settled: ended.settled.clone(),
    }
}

impl JournalContents {
    /// Finds the entries that count.
    #[must_use]
    pub fn standing(&self) -> CountedEntries<'_> {
        CountedEntries::of(&self.entries)
    }

    /// The record that counts for each run. Records of unfinished blocks are provisional.
    #[must_use]
    pub fn records(&self) -> BTreeMap<&str, &RunRecord> {
        self.standing().records()
    }

    /// The work left: blocks of the plan, or of its shard, with a run that has no settled record,
    /// and what `again` adds. A block is measured in one boot, so it is repeated whole. Its past
    /// tells which runs are left out.
    #[must_use]
    pub fn to_do(&self, again: Again) -> Vec<ToDo> {
        to_do(&self.header.plan, &self.standing(), again)
    }
}

fn to_do(plan: &Plan, standing: &CountedEntries<'_>, again: Again) -> Vec<ToDo> {
    plan.measured_blocks().into_iter().filter_map(|block| standing.to_do(block, again)).collect()
}

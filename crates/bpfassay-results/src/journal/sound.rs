// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that a journal is possible: every entry belongs to the plan in the header, and the order
//! of entries can occur.

use std::collections::{HashMap, HashSet, hash_map};

use bpfassay_protocol::tracer_messages::Refusal;
use bpfassay_study::{Block, Plan, PlannedRun};

use crate::{BlockEnded, BootVerdict, FailureKind, JournalEntry, Outcome, RunRecord};

/// Progress of a block.
#[derive(Default)]
struct BlockProgress {
    /// Number of the last started boot; 0 if none.
    started: u32,
    /// Whether the boot is still open.
    goes_on: bool,
}

/// The plan, and the state of its blocks.
pub(super) struct Sound<'a> {
    /// How messages name the scope of entries: the plan, or a shard of it.
    whole: String,
    blocks: HashMap<&'a str, BlockProgress>,
    runs: HashMap<&'a str, (&'a Block, &'a PlannedRun)>,
}

impl<'a> Sound<'a> {
    /// # Errors
    /// The fault of the plan.
    pub(super) fn new(plan: &'a Plan) -> Result<Self, String> {
        if !plan.is_intact() {
            return Err("the plan is not the one that its digest names".to_owned());
        }
        let cells = plan.cells_by_id();
        if !plan.has_shards() {
            return Err("the plan has fewer boots than shards".to_owned());
        }
        let whole = plan.shard.map_or_else(|| "the plan".to_owned(), |shard| format!("{} of the plan", shard.phrase()));
        let mut sound = Self { whole, blocks: HashMap::with_capacity(plan.blocks.len()), runs: HashMap::new() };
        for block in &plan.blocks {
            if sound.blocks.insert(&block.id, BlockProgress::default()).is_some() {
                return Err(format!("the plan has two blocks {}", block.id));
            }
            for run in &block.runs {
                let id = &run.spec.id;
                let is_of_block = cells.get(run.cell.as_str()).is_some_and(|cell| {
                    (&cell.target, &cell.case, &cell.file_system) == (&block.target, &block.case, &block.file_system)
                });
                if !is_of_block {
                    return Err(format!("run {id} of the plan belongs to no cell of its block"));
                }
                match sound.runs.entry(id) {
                    hash_map::Entry::Occupied(_) => return Err(format!("the plan has two runs {id}")),
                    hash_map::Entry::Vacant(place) => place.insert((block, run)),
                };
            }
        }
        if plan.shard.is_some() {
            let measured: HashSet<&str> = plan.measured_blocks().iter().map(|block| block.id.as_str()).collect();
            sound.blocks.retain(|id, _| measured.contains(id));
            sound.runs.retain(|_, (block, _)| measured.contains(block.id.as_str()));
        }
        Ok(sound)
    }

    /// Checks the next entry.
    ///
    /// # Errors
    /// The reason why the entry is impossible.
    pub(super) fn next(&mut self, entry: &JournalEntry) -> Result<(), String> {
        match entry {
            JournalEntry::BlockStarted(started) => {
                let known = self.known(&started.block)?;
                if started.boot <= known.started {
                    return Err(format!("boot {} of block {} was started before", started.boot, started.block));
                }
                (known.started, known.goes_on) = (started.boot, true);
                started.runs.iter().chain(&started.confirming).try_for_each(|run| self.is_of(run, &started.block))
            }
            JournalEntry::GuestReady(ready) => {
                let known = self.known(&ready.block)?;
                match known.is_in(ready.boot) {
                    true => Ok(()),
                    false => Err(not_started("a guest is ready in", ready.boot, &ready.block)),
                }
            }
            JournalEntry::Run(record) => self.run(record),
            JournalEntry::BlockEnded(ended) => self.ended(ended),
            JournalEntry::Provisioned { .. } | JournalEntry::Resumed { .. } => Ok(()),
        }
    }

    fn known(&mut self, block: &str) -> Result<&mut BlockProgress, String> {
        let whole = &self.whole;
        self.blocks.get_mut(block).ok_or_else(|| format!("{whole} has no block {block}"))
    }

    /// Checks that the plan has `run` in `block`.
    fn is_of(&self, run: &str, block: &str) -> Result<(), String> {
        match self.runs.get(run) {
            Some((known, _)) if known.id == block => Ok(()),
            _ => Err(format!("{} has no run {run} in block {block}", self.whole)),
        }
    }

    fn run(&mut self, record: &RunRecord) -> Result<(), String> {
        let (run, boot) = (&record.run, record.boot);
        let Some((block, planned)) = self.runs.get(run.as_str()).copied() else {
            return Err(format!("{} has no run {run}", self.whole));
        };
        if let Some(what) = other_than_planned(record, block, planned) {
            return Err(format!("run {run} has another {what} than the plan gives it"));
        }
        let is_in = self.known(&block.id)?.is_in(boot);
        match &record.outcome {
            // A failed run possibly never began: its guest did not start, or had already ended.
            // Boot 0 means that no start was tried.
            Outcome::Failed(failure) if boot > 0 || failure.kind == FailureKind::NotTried => Ok(()),
            Outcome::Refused(Refusal { run: Some(earlier), .. }) if is_in => self.is_of(earlier, &block.id),
            Outcome::Measured(_) | Outcome::Refused(_) if is_in => Ok(()),
            _ => Err(not_started(&format!("run {run} was done in"), boot, &block.id)),
        }
    }

    fn ended(&mut self, ended: &BlockEnded) -> Result<(), String> {
        let known = self.known(&ended.block)?;
        // A guest that could not be started has a failure, and no start entry.
        let never = ended.failure.is_some() && ended.boot > known.started;
        if !known.is_in(ended.boot) && !never {
            return Err(not_started("an end is recorded of", ended.boot, &ended.block));
        }
        known.goes_on = false;
        let blamed: Vec<&String> = match &ended.verdict {
            BootVerdict::Blamed { run } => vec![run],
            BootVerdict::Suspected { suspect, otherwise, .. } => vec![&suspect.run, &otherwise.run],
            BootVerdict::Complete | BootVerdict::Interrupted | BootVerdict::Host | BootVerdict::Nobody => Vec::new(),
        };
        ended.settled.iter().chain(blamed).try_for_each(|run| self.is_of(run, &ended.block))
    }
}

impl BlockProgress {
    const fn is_in(&self, boot: u32) -> bool {
        self.goes_on && self.started == boot
    }
}

fn not_started(what: &str, boot: u32, block: &str) -> String {
    format!("{what} boot {boot} of block {block}, which was not in progress")
}

/// Names the first property of `record` that differs from the plan.
fn other_than_planned(record: &RunRecord, block: &Block, planned: &PlannedRun) -> Option<&'static str> {
    [
        ("cell", record.cell == planned.cell),
        ("block", record.block == block.id),
        ("target", record.target == block.target),
        ("replicate", record.replicate == block.replicate),
        ("round", record.round == planned.round),
        ("mark as control", record.control == planned.control),
        ("mark as run for statistics", record.statistics == planned.spec.bpf_stats),
        ("mark as warm-up", record.warm_up == planned.warm_up),
        ("mark as run beside the reference tracer", record.has_reference == planned.has_reference()),
    ]
    .into_iter()
    .find_map(|(what, is_same)| (!is_same).then_some(what))
}

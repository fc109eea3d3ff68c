// SPDX-License-Identifier: MIT OR Apache-2.0
//! The records of a block that a store keeps. Decides which blocks are kept, makes entries, and
//! reads records from them. Pure.

use bpfassay_results::{
    BlockEnded, BlockStarted, BootVerdict, Figure, GuestReady, JOURNAL_VERSION, JournalContents, JournalEntry,
    JournalHeader, Outcome, Provenance, Reused, RunRecord,
};
use bpfassay_study::{Block, Plan, Target};
use bpfassay_testbed::manifest::Manifest;

use super::key::{StoreKey, key};
use crate::planned_targets::keep_planned;

/// The records of one boot that did a whole block.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BlockRecords {
    started: BlockStarted,
    ready: GuestReady,
    runs: Vec<RunRecord>,
    ended: BlockEnded,
}

impl BlockRecords {
    /// Reads the records of the last boot in `entries`, which are about `block`.
    ///
    /// # Errors
    /// The reason why the block is not kept: the boot was partial, or something failed. A failure
    /// can be the host's fault, so other users of the store measure such a block themselves.
    pub(super) fn of(block: &Block, entries: Vec<JournalEntry>) -> Result<Self, String> {
        let (mut started, mut ready, mut runs, mut ended) = (None, None, Vec::new(), None);
        for entry in entries {
            match entry {
                JournalEntry::BlockStarted(begun) => {
                    (started, ready, runs, ended) = (Some(*begun), None, Vec::new(), None)
                }
                JournalEntry::GuestReady(now) => ready = Some(*now),
                JournalEntry::Run(record) => runs.push(*record),
                JournalEntry::BlockEnded(end) => ended = Some(*end),
                JournalEntry::Provisioned { .. } | JournalEntry::Resumed { .. } => {
                    return Err("it has entries that are of no block".to_owned());
                }
            }
        }
        let (Some(started), Some(ready), Some(ended)) = (started, ready, ended) else {
            return Err("its boot was not brought to an end".to_owned());
        };
        let records = Self { started, ready, runs, ended };
        match records.problem(block) {
            None => Ok(records),
            Some(problem) => Err(problem),
        }
    }

    /// Returns why these are not the records of a whole block without failures, if so.
    fn problem(&self, block: &Block) -> Option<String> {
        let Self { started, ready, runs, ended } = self;
        let planned = || block.runs.iter().map(|run| run.spec.id.as_str());
        let names = [&started.block, &ready.block, &ended.block].into_iter().chain(runs.iter().map(|run| &run.block));
        let boots = [started.boot, ready.boot, ended.boot].into_iter().chain(runs.iter().map(|run| run.boot));
        if names.into_iter().any(|name| *name != block.id) || boots.into_iter().any(|boot| boot != started.boot) {
            return Some("its entries are not of one boot of this block".to_owned());
        }
        if started.confirming.is_some() || !started.runs.iter().map(String::as_str).eq(planned()) {
            return Some("its boot was for a part of its runs".to_owned());
        }
        if !runs.iter().map(|run| run.run.as_str()).eq(planned()) {
            return Some("its boot has other records than the plan has runs".to_owned());
        }
        if ended.verdict != BootVerdict::Complete || ended.failure.is_some() {
            return Some("its boot failed".to_owned());
        }
        if let Some(failed) = runs.iter().find(|run| matches!(run.outcome, Outcome::Failed(_))) {
            return Some(format!("its run {} failed", failed.run));
        }
        // Unreadable counts are a fault of that boot, not of the block.
        let is_missing = matches!(&ended.counts, Some(Figure::NotMeasured(_)))
            || matches!(&ended.code_coverage, Some(Figure::NotMeasured(_)));
        is_missing.then(|| "what QEMU's plugin counted could not be read".to_owned())
    }

    /// Returns the key of the measured block.
    fn key(&self, plan: &Plan, block: &Block, provenance: &Provenance) -> Result<StoreKey, String> {
        key(&plan.study, block, provenance, &self.started.qemu).map_err(|error| error.to_string())
    }

    /// Creates the entry with these records, and its key. `plan` has `block`.
    ///
    /// # Errors
    /// The reason why there is no entry: something that determines the figures is not known.
    pub(super) fn entry(
        mut self,
        plan: &Plan,
        block: &Block,
        provenance: &Provenance,
    ) -> Result<(StoreKey, JournalContents), String> {
        let key = self.key(plan, block, provenance)?;
        self.renumber(1, 1);
        // The log is in the results of the run that measured the block.
        (self.started.log, self.started.reused) = (None, None);
        let plan = plan_of(plan, block);
        let header = JournalHeader {
            journal: JOURNAL_VERSION,
            started_unix_ms: self.started.at_unix_ms,
            provenance: provenance_of(provenance, &plan)?,
            plan,
        };
        Ok((key, JournalContents { header, entries: self.entries(), torn: None, digest: None }))
    }

    /// Reads the records of the entry `name`, its block and its provenance.
    ///
    /// # Errors
    /// The reason why `contents` are not the entry `name`.
    pub(super) fn of_entry(name: &StoreKey, contents: JournalContents) -> Result<(Block, Provenance, Self), String> {
        let JournalContents { header, entries, torn, digest: _ } = contents;
        if torn.is_some() {
            return Err("its last line was not written to its end".to_owned());
        }
        let [block] = header.plan.blocks.as_slice() else { return Err("it is not of one block".to_owned()) };
        let records = Self::of(block, entries)?;
        let key = records.key(&header.plan, block, &header.provenance)?;
        if key != *name {
            return Err(format!("it is of another block: by what it has, its name is {key}"));
        }
        Ok((block.clone(), header.provenance, records))
    }

    /// Turns the records into those of boot `boot` in attempt `attempt` at the block. `reused` says
    /// where they come from.
    pub(super) fn taken(mut self, boot: u32, attempt: u32, reused: Reused) -> Vec<JournalEntry> {
        self.renumber(boot, attempt);
        (self.started.log, self.started.reused) = (None, Some(reused));
        self.entries()
    }

    /// Sets all times of the host's clock to 0. They differ each time the block is measured.
    pub(super) fn without_times(mut self) -> Self {
        (self.started.at_unix_ms, self.ready.ready_after_ms, self.ended.at_unix_ms) = (0, 0, 0);
        for run in &mut self.runs {
            (run.started_unix_ms, run.duration_ms) = (0, 0);
        }
        self
    }

    /// Removes the name of the log, as [`Self::entry`] does.
    #[cfg(test)]
    pub(super) fn without_log(mut self) -> Self {
        self.started.log = None;
        self
    }

    fn renumber(&mut self, boot: u32, attempt: u32) {
        (self.started.boot, self.started.attempt) = (boot, attempt);
        (self.ready.boot, self.ended.boot) = (boot, boot);
        for run in &mut self.runs {
            run.boot = boot;
        }
    }

    fn entries(self) -> Vec<JournalEntry> {
        let runs = self.runs.into_iter().map(|run| JournalEntry::Run(Box::new(run)));
        [JournalEntry::BlockStarted(Box::new(self.started)), JournalEntry::GuestReady(Box::new(self.ready))]
            .into_iter()
            .chain(runs)
            .chain([JournalEntry::BlockEnded(Box::new(self.ended))])
            .collect()
    }
}

/// Returns `plan` with only `block` and its cells.
fn plan_of(plan: &Plan, block: &Block) -> Plan {
    let is_of_block = |id: &str| block.runs.iter().any(|run| run.cell == id);
    let only = Plan {
        study: plan.study.clone(),
        narrowing: plan.narrowing.clone(),
        shard: None,
        digest: String::new(),
        cells: plan.cells.iter().filter(|cell| is_of_block(&cell.id)).cloned().collect(),
        blocks: Vec::new(),
        left_out: Vec::new(),
    };
    only.with_blocks(vec![block.clone()])
}

/// Returns the part of `provenance` that belongs to `plan`.
fn provenance_of(provenance: &Provenance, plan: &Plan) -> Result<Provenance, String> {
    let failed = |error: &dyn std::error::Error| format!("its testbed manifest cannot be kept: {error}");
    let mut manifest: Manifest = serde_json::from_value(provenance.manifest.clone()).map_err(|error| failed(&error))?;
    keep_planned(&mut manifest, plan);
    let targets = plan.targets();
    let is_planned = |target: &Target| targets.iter().any(|planned| **planned == *target);
    Ok(Provenance {
        bpfassay: provenance.bpfassay.clone(),
        host: provenance.host.clone(),
        qemu: provenance
            .qemu
            .iter()
            .filter(|(arch, _)| targets.iter().any(|target| target.arch == **arch))
            .map(|(arch, facts)| (*arch, facts.clone()))
            .collect(),
        targets: provenance.targets.iter().filter(|made| is_planned(&made.target)).cloned().collect(),
        manifest: serde_json::to_value(&manifest).map_err(|error| failed(&error))?,
    })
}

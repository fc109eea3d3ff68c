// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns the entries of a journal into parts of the results: the records that count, and the guests
//! that were started.

use std::collections::{HashMap, HashSet};

use bpfassay_study::Plan;

use super::{code_coverage::Coverages, direct::BootCounts, runs};
use bpfassay_results::{BlockStarted, Boot, Figure, JournalContents, JournalEntry, Provenance, RunDerived, RunResult};

/// Returns the positions in the journal of the records that count, and notes about the others.
pub(super) fn standing(contents: &JournalContents) -> (HashSet<usize>, Vec<String>) {
    let standing = contents.standing();
    let stands = |entry: &JournalEntry| match entry {
        JournalEntry::Run(record) => {
            standing.record(&record.run).is_some_and(|kept| std::ptr::eq(kept, record.as_ref()))
        }
        _ => false,
    };
    let places = contents.entries.iter().enumerate().filter(|(_, entry)| stands(entry)).map(|(at, _)| at).collect();
    let mut notes = Vec::new();
    for (block, count) in standing.superseded() {
        notes.push(format!(
            "block {block} was booted again whole, from its warm-up: {count} records of earlier boots do not count"
        ));
    }
    match standing.provisional() {
        0 => {}
        count => notes.push(format!(
            "{count} runs are of boots that were not brought to their end: their figures are provisional, and `run --resume` \
             measures their blocks again"
        )),
    }
    (places, notes)
}

/// Figures that follow from single entries, independently of the rest of the journal.
#[derive(Default)]
pub(super) struct Ahead {
    /// The figures of each record, in the order of the records.
    derived: Vec<Option<Box<RunDerived>>>,
    counts: BootCounts,
    coverages: Coverages,
}

impl Ahead {
    /// Derives what follows from single `entries` of a journal of `plan`, and removes the counts
    /// from them.
    pub(super) fn of(plan: &Plan, entries: &mut [JournalEntry]) -> Self {
        let cells = plan.cells_by_id();
        let mut ahead = Self::default();
        for entry in entries {
            let derived = match &*entry {
                JournalEntry::Run(record) => {
                    cells.get(record.cell.as_str()).and_then(|cell| runs::derive(plan, cell, record))
                }
                _ => None,
            };
            ahead.take(entry, derived.map(Box::new));
        }
        ahead
    }

    /// Adds the next entry and removes the counts from it. If the entry is a record, `derived` has
    /// its figures.
    pub(super) fn take(&mut self, entry: &mut JournalEntry, derived: Option<Box<RunDerived>>) {
        match entry {
            JournalEntry::Run(_) => self.derived.push(derived),
            JournalEntry::BlockEnded(ended) => {
                if let Some(of_boot) = ended.counts.take() {
                    self.counts.take(&ended.block, ended.boot, of_boot);
                }
                if let Some(of_boot) = ended.code_coverage.take() {
                    self.coverages.take(&ended.block, ended.boot, of_boot);
                }
            }
            _ => {}
        }
    }
}

/// The entries of a journal in the form of results.
pub(super) struct TakenEntries {
    pub(super) plan: Plan,
    pub(super) provenance: Vec<Provenance>,
    pub(super) boots: Vec<Boot>,
    pub(super) runs: Vec<RunResult>,
    /// The number of each run's record among all records of the journal.
    pub(super) numbers: Vec<usize>,
    pub(super) counts: BootCounts,
    pub(super) coverages: Coverages,
    pub(super) notes: Vec<String>,
}

/// Turns the entries into parts of results. It uses only the records at the positions in `stands`.
pub(super) fn take(
    plan: Plan,
    first: Provenance,
    entries: Vec<JournalEntry>,
    ahead: Ahead,
    stands: &HashSet<usize>,
) -> TakenEntries {
    let cells = plan.cells_by_id();
    let mut provenance = vec![first];
    let mut boots = Boots::default();
    let Ahead { derived, counts, coverages } = ahead;
    let mut derived = derived.into_iter().enumerate();
    let mut notes = Vec::new();
    let mut runs = Vec::with_capacity(stands.len());
    let mut numbers = Vec::with_capacity(stands.len());
    for (index, entry) in entries.into_iter().enumerate() {
        match entry {
            // Reading has merged this entry into the earlier provenance.
            JournalEntry::Provisioned { .. } => {}
            JournalEntry::Resumed { provenance: again, .. } => {
                if provenance.last() != Some(&again) {
                    provenance.push(*again);
                }
            }
            JournalEntry::Run(record) => {
                let (number, derived) = derived.next().unwrap_or_default();
                if !cells.contains_key(record.cell.as_str()) {
                    notes.push(format!("run {} belongs to no cell of the plan and was left aside", record.run));
                } else if stands.contains(&index) {
                    runs.push(RunResult { record, derived });
                    numbers.push(number);
                }
                // The record is superseded: the block was booted again.
            }
            JournalEntry::BlockStarted(started) => boots.start(*started),
            JournalEntry::GuestReady(ready) => {
                if let Some(boot) = boots.get(&ready.block, ready.boot) {
                    boot.ready_after_ms = Figure::Value(ready.ready_after_ms);
                    boot.facts = Some(ready.facts);
                    boot.nodes = ready.nodes;
                }
            }
            JournalEntry::BlockEnded(ended) => {
                if let Some(boot) = boots.get(&ended.block, ended.boot) {
                    boot.failure = ended.failure;
                    boot.notes = ended.notes;
                    boot.verdict = Some(ended.verdict);
                }
            }
        }
    }
    drop(cells);
    TakenEntries { plan, provenance, boots: boots.all, runs, numbers, counts, coverages, notes }
}

/// The guests that were started, in order.
#[derive(Default)]
struct Boots {
    all: Vec<Boot>,
    places: HashMap<String, HashMap<u32, usize>>,
}

impl Boots {
    fn start(&mut self, started: BlockStarted) {
        self.places.entry(started.block.clone()).or_default().insert(started.boot, self.all.len());
        self.all.push(Boot {
            block: started.block,
            boot: started.boot,
            started_unix_ms: started.at_unix_ms,
            qemu: started.qemu,
            log: started.log,
            ready_after_ms: Figure::missing("the guest never reported that it was ready"),
            facts: None,
            nodes: Vec::new(),
            failure: None,
            notes: Vec::new(),
            confirming: started.confirming,
            verdict: None,
            reused: started.reused,
        });
    }

    fn get(&mut self, block: &str, boot: u32) -> Option<&mut Boot> {
        self.all.get_mut(*self.places.get(block)?.get(&boot)?)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Provisional rows of the table: results of the rounds that are complete so far.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bpfassay_report::derive_all;
use bpfassay_results::{
    JOURNAL_VERSION, JournalContents, JournalEntry, JournalHeader, Provenance, Results, RunRecord, ToDo,
    event::{ProvisionalCell, ProvisionalRows},
};
use bpfassay_study::{Block, Cell, Plan};

/// Number of rounds from which a block repeats its rows when the number has doubled.
const DOUBLING_FROM: u32 = 4;

/// The rounds of a plan that are complete so far.
pub(super) struct Rounds<'a> {
    plan: &'a Plan,
    provenance: &'a Provenance,
    /// Tables, each under the first cell of its blocks.
    tables: BTreeMap<String, ReplicateBlocks>,
    /// The first cell of each block, by the block's id.
    places: HashMap<String, String>,
}

/// The blocks with the same cells: replicates.
#[derive(Default)]
struct ReplicateBlocks {
    /// The blocks without their warm-up, and without rounds that have a settled run.
    blocks: Vec<Block>,
    /// The records by run. A repeated run replaces its record.
    records: BTreeMap<String, RunRecord>,
    /// Number of rounds in the last rows.
    given: u32,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(plan: &'a Plan, provenance: &'a Provenance) -> Self {
        Self { plan, provenance, tables: BTreeMap::new(), places: HashMap::new() }
    }

    /// Adds `blocks`, which will be done now.
    pub(super) fn begin(&mut self, blocks: &[ToDo]) {
        for ToDo { block, past } in blocks {
            let measured = || block.runs.iter().filter(|run| !run.warm_up);
            let settled = measured().filter(|run| past.settled.contains(&run.spec.id));
            let settled: BTreeSet<u32> = settled.map(|run| run.round).collect();
            let runs: Vec<_> = measured().filter(|run| !settled.contains(&run.round)).cloned().collect();
            let Some(place) = runs.iter().map(|run| run.cell.clone()).min() else { continue };
            if self.places.insert(block.id.clone(), place.clone()).is_none() {
                self.tables.entry(place).or_default().blocks.push(Block { runs, ..block.clone() });
            }
        }
    }

    /// Forgets the records of runs of a block that are done again.
    pub(super) fn again(&mut self, block: &str, runs: &[String]) {
        if let Some(table) = self.places.get(block).and_then(|place| self.tables.get_mut(place)) {
            table.records.retain(|run, _| !runs.contains(run));
        }
    }

    /// Adds `record`, and returns rows if the record completes the block's first round, all its
    /// rounds, or twice as many rounds as the last rows had. The rows use all complete rounds of
    /// the blocks with the same cells.
    pub(super) fn take(&mut self, record: &RunRecord) -> Option<ProvisionalRows> {
        let table = self.tables.get_mut(self.places.get(&record.block)?)?;
        if record.warm_up {
            return None;
        }
        table.records.insert(record.run.clone(), record.clone());
        let block = table.blocks.iter().find(|block| block.id == record.block)?;
        let is_ended = table.missing(block).is_empty();
        let rounds = table.blocks.iter().map(|block| rounds_of(block) - count(&table.missing(block))).sum();
        let is_due = table.given == 0 || is_ended || (rounds >= DOUBLING_FROM && rounds >= table.given * 2);
        if rounds <= table.given || !is_due {
            return None;
        }
        let of = table.blocks.iter().map(rounds_of).sum();
        let is_of_block = |cell: &Cell| {
            (&cell.target, &cell.case, &cell.file_system) == (&block.target, &block.case, &block.file_system)
        };
        let mut plan = self.plan.with_blocks(table.blocks.iter().filter_map(|block| table.complete(block)).collect());
        plan.cells.retain(is_of_block);
        let entries = plan.runs().filter_map(|(_, run)| table.records.get(&run.spec.id));
        let entries = entries.map(|record| JournalEntry::Run(Box::new(record.clone()))).collect();
        table.given = rounds;
        if rounds == of && plan.until().is_none() {
            table.records.clear();
        }
        let header =
            JournalHeader { journal: JOURNAL_VERSION, started_unix_ms: 0, plan, provenance: self.provenance.clone() };
        let results = derive_all(JournalContents { header, entries, torn: None, digest: None });
        Some(event(&record.block, &results, rounds, of))
    }
}

impl ReplicateBlocks {
    /// Returns the rounds of `block` that lack a record.
    fn missing(&self, block: &Block) -> BTreeSet<u32> {
        let missing = block.runs.iter().filter(|run| !self.records.contains_key(&run.spec.id));
        missing.map(|run| run.round).collect()
    }

    /// Reduces `block` to its complete rounds, if there are any.
    fn complete(&self, block: &Block) -> Option<Block> {
        let missing = self.missing(block);
        let runs: Vec<_> = block.runs.iter().filter(|run| !missing.contains(&run.round)).cloned().collect();
        (!runs.is_empty()).then(|| Block { runs, ..block.clone() })
    }
}

/// Counts the rounds of `block`.
fn rounds_of(block: &Block) -> u32 {
    count(&block.runs.iter().map(|run| run.round).collect())
}

fn count(rounds: &BTreeSet<u32>) -> u32 {
    u32::try_from(rounds.len()).unwrap_or(u32::MAX)
}

fn event(block: &str, results: &Results, rounds: u32, of: u32) -> ProvisionalRows {
    let cells = results.cells.iter().map(|cell| ProvisionalCell {
        cell: cell.cell.clone(),
        metrics: cell.metrics.clone(),
        accuracy: cell.accuracy.clone(),
    });
    ProvisionalRows { block: block.to_owned(), rounds, of, cells: cells.collect() }
}

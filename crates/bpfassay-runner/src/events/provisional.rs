// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of the table before their time: what the first round of each block comes to, as soon as it is in.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bpfassay_report::derive_all;
use bpfassay_results::{
    Contents, Entry, Header, JOURNAL_VERSION, Provenance, Results, RunRecord,
    event::{ProvisionalCell, ProvisionalRows},
};
use bpfassay_study::{Block, Plan};

/// The first rounds of a plan.
pub(super) struct FirstRounds<'a> {
    plan: &'a Plan,
    provenance: &'a Provenance,
    blocks: HashMap<&'a str, &'a Block>,
    /// Records of first rounds that are not complete, by block and run: a run that is done again replaces itself.
    records: BTreeMap<&'a str, BTreeMap<String, RunRecord>>,
    /// First cells of the blocks whose rows were given already: further replicates give none.
    given: BTreeSet<&'a str>,
}

impl<'a> FirstRounds<'a> {
    pub(super) fn new(plan: &'a Plan, provenance: &'a Provenance) -> Self {
        let blocks = plan.blocks.iter().map(|block| (block.id.as_str(), block)).collect();
        Self { plan, provenance, blocks, records: BTreeMap::new(), given: BTreeSet::new() }
    }

    /// The results of the first round of a block that `record` completes, with nothing else in them.
    pub(super) fn take(&mut self, record: &RunRecord) -> Option<Results> {
        if record.round != 1 || record.warm_up {
            return None;
        }
        let block = *self.blocks.get(record.block.as_str())?;
        let place = block.runs.iter().map(|run| run.cell.as_str()).min()?;
        if self.given.contains(place) {
            return None;
        }
        let records = self.records.entry(&block.id).or_default();
        records.insert(record.run.clone(), record.clone());
        let first = block.runs.iter().filter(|run| run.round == 1 && !run.warm_up);
        if !first.clone().all(|run| records.contains_key(&run.spec.id)) {
            return None;
        }
        let records = self.records.remove(block.id.as_str())?;
        self.given.insert(place);
        let only = Block { runs: first.cloned().collect(), ..block.clone() };
        let is_of_block = |cell: &&bpfassay_study::Cell| {
            (&cell.target, &cell.case, &cell.file_system) == (&block.target, &block.case, &block.file_system)
        };
        let mut plan = self.plan.with_blocks(vec![only]);
        plan.cells = self.plan.cells.iter().filter(is_of_block).cloned().collect();
        let header = Header { journal: JOURNAL_VERSION, started_unix_ms: 0, plan, provenance: self.provenance.clone() };
        let entries = records.into_values().map(|record| Entry::Run(Box::new(record))).collect();
        Some(derive_all(Contents { header, entries, torn: None, digest: None }))
    }

    /// The event of `results`, which [`Self::take`] gave for a run of `block`.
    pub(super) fn event(&self, block: &str, results: &Results) -> ProvisionalRows {
        let rounds = self
            .blocks
            .get(block)
            .and_then(|block| block.runs.iter().filter(|run| !run.warm_up).map(|run| run.round).max());
        let cells = results
            .cells
            .iter()
            .map(|cell| ProvisionalCell {
                cell: cell.cell.clone(),
                metrics: cell.metrics.clone(),
                accuracy: cell.accuracy.clone(),
            })
            .collect();
        ProvisionalRows { block: block.to_owned(), rounds: 1, of: rounds.unwrap_or(1), cells }
    }
}

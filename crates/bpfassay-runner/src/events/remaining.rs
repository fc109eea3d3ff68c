// SPDX-License-Identifier: MIT OR Apache-2.0
//! Estimates how long the rest of a plan will take from what is done.

use std::{collections::BTreeMap, num::NonZeroU32};

use bpfassay_results::ToDo;
use bpfassay_study::{Block, Target};

/// A mean of seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, seconds: f64) {
        self.sum += seconds;
        self.count += 1;
    }

    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

/// The runs of a block that are left.
#[derive(Debug)]
struct RunsLeft {
    target: Target,
    /// The guest is up, or was.
    is_booted: bool,
    /// Cells of the runs that are left.
    cells: Vec<String>,
}

/// The runs that are left, and the durations of earlier runs and boots.
#[derive(Debug)]
pub(super) struct Remaining {
    jobs: NonZeroU32,
    /// Whether guests are still being built.
    makes_guests: bool,
    blocks: BTreeMap<String, RunsLeft>,
    by_cell: BTreeMap<String, Mean>,
    by_target: BTreeMap<Target, Mean>,
    runs: Mean,
    boots_by_target: BTreeMap<Target, Mean>,
    boots: Mean,
}

impl Remaining {
    /// Begins with all of `blocks`, of which `jobs` run in parallel.
    pub(super) fn new(blocks: &[ToDo], jobs: NonZeroU32) -> Self {
        let waiting = |todo: &ToDo| RunsLeft {
            target: todo.block.target.clone(),
            is_booted: false,
            cells: todo.open().map(|run| run.cell.clone()).collect(),
        };
        Self {
            jobs,
            makes_guests: false,
            blocks: blocks.iter().map(|todo| (todo.block.id.clone(), waiting(todo))).collect(),
            by_cell: BTreeMap::new(),
            by_target: BTreeMap::new(),
            runs: Mean::default(),
            boots_by_target: BTreeMap::new(),
            boots: Mean::default(),
        }
    }

    /// Sets whether guests are still being built.
    pub(super) fn making_guests(&mut self, makes_guests: bool) {
        self.makes_guests = makes_guests;
    }

    /// Notes that the guest of `block` was up after `seconds`.
    pub(super) fn booted(&mut self, block: &Block, seconds: f64) {
        self.boots.add(seconds);
        self.boots_by_target.entry(block.target.clone()).or_default().add(seconds);
        if let Some(waiting) = self.blocks.get_mut(&block.id) {
            waiting.is_booted = true;
        }
    }

    /// Notes that a run of `cell` in the block with id `block` ended after `seconds`. A run of 0 s
    /// never began and does not count for the mean.
    pub(super) fn ended(&mut self, block: &str, cell: &str, seconds: f64) {
        let Some(waiting) = self.blocks.get_mut(block) else { return };
        if let Some(at) = waiting.cells.iter().position(|left| left == cell) {
            waiting.cells.swap_remove(at);
        }
        if seconds > 0.0 {
            self.runs.add(seconds);
            self.by_cell.entry(cell.to_owned()).or_default().add(seconds);
            self.by_target.entry(waiting.target.clone()).or_default().add(seconds);
        }
    }

    /// Notes that a run of `cell` in `block` must be done again in another guest.
    pub(super) fn again(&mut self, block: &str, cell: &str) {
        if let Some(waiting) = self.blocks.get_mut(block) {
            waiting.cells.push(cell.to_owned());
            waiting.is_booted = false;
        }
    }

    /// Estimates the seconds that the rest will take.
    ///
    /// The estimate of a run is the mean of its cell, or else of its target, or else of all runs;
    /// boots likewise. There is none before the first run has ended, nor while guests are being
    /// built.
    pub(super) fn seconds(&self) -> Option<f64> {
        if self.makes_guests {
            return None;
        }
        let overall = self.runs.value()?;
        let mean = |means: &BTreeMap<Target, Mean>, target: &Target| means.get(target).and_then(|mean| mean.value());
        let of_block = |waiting: &RunsLeft| {
            let of_target = mean(&self.by_target, &waiting.target).unwrap_or(overall);
            let of_run = |cell: &String| self.by_cell.get(cell).and_then(|mean| mean.value()).unwrap_or(of_target);
            let boot = match waiting.is_booted {
                true => 0.0,
                false => mean(&self.boots_by_target, &waiting.target).or(self.boots.value()).unwrap_or_default(),
            };
            boot + waiting.cells.iter().map(of_run).sum::<f64>()
        };
        let blocks: Vec<f64> = self.blocks.values().filter(|waiting| !waiting.cells.is_empty()).map(of_block).collect();
        let longest = blocks.iter().copied().fold(0.0, f64::max);
        // A block has one guest, so it cannot be divided.
        Some((blocks.iter().sum::<f64>() / f64::from(self.jobs.get())).max(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::tests::plan;

    fn todo(plan: &bpfassay_study::Plan) -> Vec<ToDo> {
        plan.blocks.iter().cloned().map(ToDo::fresh).collect()
    }

    fn jobs(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    #[test]
    fn nothing_is_known_before_the_first_run() {
        let plan = plan();
        let mut left = Remaining::new(&todo(&plan), jobs(1));
        left.booted(&plan.blocks[0], 3.0);
        assert_eq!(left.seconds(), None);
    }

    #[test]
    fn runs_last_as_long_as_those_of_their_cell_target_or_study() {
        // There are two targets with two runs each: the baseline and fexit.
        let plan = plan();
        let (first, second) = (&plan.blocks[0], &plan.blocks[1]);
        let mut left = Remaining::new(&todo(&plan), jobs(1));
        left.booted(first, 3.0);
        left.ended(&first.id, &first.runs[0].cell, 2.0);
        // One run of the same target, a boot and two runs of the other one are left. Their
        // estimates are the known durations.
        assert_eq!(left.seconds(), Some(2.0 + 3.0 + 2.0 * 2.0));
        left.ended(&first.id, &first.runs[1].cell, 4.0);
        assert_eq!(left.seconds(), Some(3.0 + 2.0 * 3.0));
        left.booted(second, 7.0);
        left.ended(&second.id, &second.runs[0].cell, 10.0);
        assert_eq!(left.seconds(), Some(10.0));
        // This run never began.
        left.ended(&second.id, &second.runs[1].cell, 0.0);
        assert_eq!(left.seconds(), Some(0.0));
    }

    #[test]
    fn nothing_is_known_while_guests_are_being_made() {
        let plan = plan();
        let block = &plan.blocks[0];
        let mut left = Remaining::new(&todo(&plan), jobs(1));
        left.booted(block, 1.0);
        left.making_guests(true);
        left.ended(&block.id, &block.runs[0].cell, 2.0);
        assert_eq!(left.seconds(), None);
        left.making_guests(false);
        assert_eq!(left.seconds(), Some(7.0));
    }

    #[test]
    fn guests_side_by_side_are_done_sooner_but_none_before_its_own_end() {
        let plan = plan();
        let block = &plan.blocks[0];
        let seconds = |number| {
            let mut left = Remaining::new(&todo(&plan), jobs(number));
            left.booted(block, 1.0);
            left.ended(&block.id, &block.runs[0].cell, 2.0);
            left.seconds()
        };
        // One block has 2 s left, the other one 1 s and 4 s.
        assert_eq!(seconds(1), Some(7.0));
        assert_eq!(seconds(2), Some(5.0));
        assert_eq!(seconds(64), Some(5.0));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A model of caches and branch prediction. It finds misses and mispredicted branches for given
//! blocks and accesses.
//!
//! The result depends only on the geometry and on the input since [`CpuModel::forget`], not on the
//! host. The plugin, a separate library, is compiled with these files, too.
//! docs/explanation/priced-cost.md says what is modelled and what is not.

#[path = "model/branch.rs"]
mod branch;
#[path = "model/cache.rs"]
mod cache;
#[path = "model/ending.rs"]
mod ending;

pub(crate) use self::{branch::BlockEnding, ending::ending};
use self::{branch::Predictor, cache::CacheModel};

/// Findings for a block: misses of the L1 instruction cache, of the L1 data cache, and of the L2
/// cache by either, then mispredicted branches.
pub(crate) type Found = [u64; 4];

const L1I: usize = 0;
const L1D: usize = 1;
const L2: usize = 2;
const MISPREDICTED: usize = 3;

/// Count of numbers in a model's argument, separated by `-` (`Model::argument` of
/// bpfassay-study).
const NUMBERS: usize = 10;

/// A block that was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    /// The index of the counters for this block's findings.
    pub(crate) index: usize,
    /// The address of the first instruction.
    pub(crate) address: u64,
    /// The size of the code in bytes.
    pub(crate) bytes: u64,
    /// The address of the last instruction.
    pub(crate) last: u64,
    /// The kind of the last instruction.
    pub(crate) ending: BlockEnding,
}

/// The model's caches and predictors.
#[derive(Debug)]
pub(crate) struct CpuModel {
    l1i: CacheModel,
    l1d: CacheModel,
    l2: CacheModel,
    predictor: Predictor,
    /// Number of bits to shift an address right to get its line.
    line: u32,
    /// The previous block. Its last instruction leads to the next block.
    before: Option<Step>,
}

impl CpuModel {
    /// Parses `argument`; `None` if it does not describe a model.
    pub(crate) fn new(argument: &str) -> Option<Self> {
        let numbers: Vec<u32> = argument.split('-').map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let numbers: [u32; NUMBERS] = numbers.try_into().ok()?;
        let [line, l1i, l1i_ways, l1d, l1d_ways, l2, l2_ways, counters, targets, returns] = numbers;
        if !line.is_power_of_two() || !(16..=4096).contains(&line) {
            return None;
        }
        Some(Self {
            l1i: CacheModel::new(l1i / line, l1i_ways)?,
            l1d: CacheModel::new(l1d / line, l1d_ways)?,
            l2: CacheModel::new(l2 / line, l2_ways)?,
            predictor: Predictor::new(counters, targets, returns)?,
            line: line.trailing_zeros(),
            before: None,
        })
    }

    /// Resets the model as if nothing had been executed.
    pub(crate) fn forget(&mut self) {
        for cache in [&mut self.l1i, &mut self.l1d, &mut self.l2] {
            cache.forget();
        }
        self.predictor.forget();
        self.before = None;
    }

    /// Executes `step`. Returns the findings for it, and the index of the previous block if its
    /// branch was mispredicted.
    pub(crate) fn execute(&mut self, step: Step) -> (Found, Option<usize>) {
        let before = self.before.replace(step);
        let is_wrong = |before: &Step| {
            let behind = before.address.wrapping_add(before.bytes);
            self.predictor.is_mispredicted(before.ending, before.last, behind, step.address)
        };
        let mispredicted = before.filter(is_wrong).map(|before| before.index);
        let mut found = Found::default();
        for line in self.lines(step.address, step.bytes) {
            if self.l1i.misses(line) {
                found[L1I] += 1;
                found[L2] += u64::from(self.l2.misses(line));
            }
        }
        (found, mispredicted)
    }

    /// Reads or writes `bytes` bytes at `address`.
    pub(crate) fn access(&mut self, address: u64, bytes: u64) -> Found {
        let mut found = Found::default();
        for line in self.lines(address, bytes) {
            if self.l1d.misses(line) {
                found[L1D] += 1;
                found[L2] += u64::from(self.l2.misses(line));
            }
        }
        found
    }

    /// The findings of a mispredicted branch.
    pub(crate) const fn mispredicted() -> Found {
        let mut found = [0; 4];
        found[MISPREDICTED] = 1;
        found
    }

    fn lines(&self, address: u64, bytes: u64) -> std::ops::RangeInclusive<u64> {
        let last = address.saturating_add(bytes.saturating_sub(1));
        address >> self.line..=last >> self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of 64 bytes; L1: two sets of two lines, L2: four of four; 16 counters, 4 targets, 2
    /// returns.
    const SMALL: &str = "64-256-2-256-2-1024-4-16-4-2";

    fn step(index: usize, address: u64, bytes: u64, ending: BlockEnding) -> Step {
        Step { index, address, bytes, last: address + bytes - 1, ending }
    }

    #[test]
    fn misses_of_both_first_caches_go_to_the_second() {
        let mut model = CpuModel::new(SMALL).unwrap();
        // A block that crosses two line ends.
        let block = step(0, 0x1030, 0x60, BlockEnding::Other);
        assert_eq!(model.execute(block), ([3, 0, 3, 0], None));
        assert_eq!(model.execute(block), ([0, 0, 0, 0], None));
        // The data is at the address of code, so only the L2 cache has it.
        assert_eq!(model.access(0x1030, 8), [0, 1, 0, 0]);
        assert_eq!(model.access(0x1030, 8), [0, 0, 0, 0]);
        // An access across the end of a line.
        assert_eq!(model.access(0x203c, 8), [0, 2, 2, 0]);
        model.forget();
        assert_eq!(model.access(0x1030, 8), [0, 1, 1, 0]);
    }

    #[test]
    fn a_branch_is_mispredicted_for_the_block_that_it_is_of() {
        let mut model = CpuModel::new(SMALL).unwrap();
        let branch = step(7, 0x1000, 16, BlockEnding::Conditional { target: 0x2000 });
        let target = step(8, 0x2000, 16, BlockEnding::Other);
        assert_eq!(model.execute(branch).1, None);
        assert_eq!(model.execute(target).1, Some(7), "branches are not taken before they ever were");
        assert_eq!(model.execute(branch).1, None);
        // An exception occurred: the next block is neither the target nor the code after it.
        assert_eq!(model.execute(step(9, 0x9000, 16, BlockEnding::Other)).1, None);
        assert_eq!(CpuModel::mispredicted(), [0, 0, 0, 1]);
    }

    #[test]
    fn what_describes_no_model_is_refused() {
        for wrong in [
            "",
            "cachegrind",
            "64-256-2-256-2-1024-4-16-4",
            "64-256-2-256-2-1024-4-16-4-2-2",
            "63-256-2-256-2-1024-4-16-4-2",
            "0-256-2-256-2-1024-4-16-4-2",
            "64-0-2-256-2-1024-4-16-4-2",
            "64-256-0-256-2-1024-4-16-4-2",
            "64-256-3-256-2-1024-4-16-4-2",
            "64-256-2-256-2-4294967295-4-16-4-2",
            "64-256-2-256-2-1024-4-15-4-2",
            "64-256-2-256-2-1024-4-16-3-2",
            "64-256-2-256-2-1024-4-16-4-0",
            "64-256-2-256-2-1024-4-16-4--2",
        ] {
            assert!(CpuModel::new(wrong).is_none(), "{wrong}");
        }
    }
}

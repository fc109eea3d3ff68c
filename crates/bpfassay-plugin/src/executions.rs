// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts how often each instruction of some functions was executed, from block executions.

use std::collections::BTreeMap;

use crate::Window;

/// Executions of the code of some functions, by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Executions {
    /// Start addresses, each with the executions of the instructions from there to the next one.
    steps: Vec<(u64, u64)>,
}

impl Executions {
    /// Returns the executions in `windows` of `functions`, given by address and length.
    pub(crate) fn of(windows: &[Window], functions: &[(u64, u32)]) -> Self {
        let mut changes = BTreeMap::<u64, i128>::new();
        let mut sorted = functions.to_vec();
        sorted.sort_unstable();
        for block in windows.iter().flat_map(|window| &window.blocks) {
            let before = sorted.partition_point(|(start, _)| *start <= block.address);
            let function = before.checked_sub(1).and_then(|at| sorted.get(at));
            let is_within = |(start, length): &(u64, u32)| block.address - start < u64::from(*length);
            if function.is_some_and(is_within) && block.bytes > 0 {
                *changes.entry(block.address).or_default() += i128::from(block.executions);
                *changes.entry(block.address.saturating_add(block.bytes)).or_default() -= i128::from(block.executions);
            }
        }
        let mut sum = 0_i128;
        let step = |(address, change)| {
            sum += change;
            (address, u64::try_from(sum).unwrap_or(u64::MAX))
        };
        Self { steps: changes.into_iter().map(step).collect() }
    }

    /// Returns the executions of the instruction at `address`.
    pub(crate) fn at(&self, address: u64) -> u64 {
        let next = self.steps.partition_point(|(start, _)| *start <= address);
        next.checked_sub(1).and_then(|at| self.steps.get(at)).map_or(0, |(_, executions)| *executions)
    }

    /// Returns the executions of the most executed instruction from `address` to before `end`.
    pub(crate) fn most(&self, address: u64, end: u64) -> u64 {
        let next = self.steps.partition_point(|(start, _)| *start <= address);
        let behind = self.steps.get(next..).unwrap_or_default().iter().take_while(|(start, _)| *start < end);
        behind.map(|(_, executions)| *executions).fold(self.at(address), u64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockExecutions;

    fn block(address: u64, bytes: u64, executions: u64) -> BlockExecutions {
        BlockExecutions { address, instructions: 1, bytes, executions, misses: None }
    }

    fn window(blocks: Vec<BlockExecutions>) -> Window {
        Window { number: 1, user: Vec::new(), user_misses: None, uncounted: 0, blocks }
    }

    #[test]
    fn blocks_that_overlap_and_windows_add_up() {
        // A block from 0x100 to 0x110, one that begins in its middle, one after them, and foreign
        // code on both sides.
        let windows = [
            window(vec![block(0xf0, 16, 1000), block(0x100, 16, 5), block(0x108, 8, 3), block(0x110, 4, 7)]),
            window(vec![block(0x100, 16, 10), block(0x120, 8, 1000), block(0x118, 0, 9)]),
        ];
        let executions = Executions::of(&windows, &[(0x100, 0x20)]);
        let at: Vec<u64> =
            [0xf8, 0x100, 0x104, 0x108, 0x10f, 0x110, 0x113, 0x114, 0x120].map(|at| executions.at(at)).into();
        assert_eq!(at, [0, 15, 15, 18, 18, 7, 7, 0, 0]);
        assert_eq!((executions.most(0x100, 0x108), executions.most(0x100, 0x109)), (15, 18));
        assert_eq!((executions.most(0x110, 0x120), executions.most(0x114, 0x120)), (7, 0));
    }

    #[test]
    fn more_than_numbers_hold_stays_the_most() {
        let windows = [window(vec![block(u64::MAX - 4, 64, u64::MAX), block(u64::MAX - 4, 64, u64::MAX)])];
        assert_eq!(Executions::of(&windows, &[(u64::MAX - 8, 8)]).at(u64::MAX - 1), u64::MAX);
    }
}

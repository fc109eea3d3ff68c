// SPDX-License-Identifier: MIT OR Apache-2.0
//! Branch prediction: directions of conditional branches, targets of indirect branches, and a stack
//! of return addresses.

/// Largest number of entries in a table.
const MOST: u32 = 1 << 20;

/// The kind of a block's last instruction, as far as prediction matters. A direct target is
/// included to detect an exception before the instruction: the next block is then a different one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum BlockEnding {
    /// Not predicted: a direct jump, no branch, or an entry into or exit from the kernel.
    Other,
    /// A conditional branch.
    Conditional { target: u64 },
    /// A direct call.
    Call { target: u64 },
    /// An indirect call.
    IndirectCall,
    /// An indirect jump.
    Indirect,
    /// A return.
    Return,
}

/// The tables of the predictor and its position in them.
#[derive(Debug)]
pub(crate) struct Predictor {
    /// Counters of two bits: from 2 on, a branch is predicted to be taken.
    counters: Vec<u8>,
    /// Directions of the last conditional branches, the most recent one in the lowest bit.
    history: u64,
    /// Last targets of indirect branches.
    targets: Vec<u64>,
    /// Return addresses as a ring: the last one is at `top` - 1, and the oldest one is overwritten.
    returns: Vec<u64>,
    top: usize,
}

impl Predictor {
    /// A predictor with `counters` of directions and `targets` of indirect branches, both powers of
    /// two, and `returns` addresses on the stack.
    pub(crate) fn new(counters: u32, targets: u32, returns: u32) -> Option<Self> {
        let is_table = |entries: u32| entries.is_power_of_two() && entries <= MOST;
        let is_some = is_table(counters) && is_table(targets) && (1..=MOST).contains(&returns);
        is_some.then(|| Self {
            counters: vec![0; counters as usize],
            history: 0,
            targets: vec![0; targets as usize],
            returns: vec![0; returns as usize],
            top: 0,
        })
    }

    /// Clears all tables.
    pub(crate) fn forget(&mut self) {
        self.counters.fill(0);
        self.targets.fill(0);
        self.returns.fill(0);
        (self.history, self.top) = (0, 0);
    }

    /// Records that the guest went to `next` after the instruction `ending` at `address`; `behind`
    /// is the address after the instruction. Returns whether that was mispredicted.
    pub(crate) fn is_mispredicted(&mut self, ending: BlockEnding, address: u64, behind: u64, next: u64) -> bool {
        match ending {
            BlockEnding::Other => false,
            BlockEnding::Conditional { target } if next == target || next == behind => {
                self.is_wrong_direction(address, next != behind)
            }
            BlockEnding::Call { target } if next == target => {
                self.push(behind);
                false
            }
            // An exception occurred before the branch.
            BlockEnding::Conditional { .. } | BlockEnding::Call { .. } => false,
            BlockEnding::IndirectCall => {
                self.push(behind);
                self.is_wrong_target(address, next)
            }
            BlockEnding::Indirect => self.is_wrong_target(address, next),
            BlockEnding::Return => self.pop() != next,
        }
    }

    fn is_wrong_direction(&mut self, address: u64, is_taken: bool) -> bool {
        // Branches lie at even addresses on two of the three architectures.
        let index = ((address >> 1) ^ self.history) as usize & (self.counters.len() - 1);
        let counter = &mut self.counters[index];
        let is_wrong = (*counter >= 2) != is_taken;
        *counter = if is_taken { (*counter + 1).min(3) } else { counter.saturating_sub(1) };
        self.history = self.history << 1 | u64::from(is_taken);
        is_wrong
    }

    fn is_wrong_target(&mut self, address: u64, next: u64) -> bool {
        let index = (address >> 1) as usize & (self.targets.len() - 1);
        std::mem::replace(&mut self.targets[index], next) != next
    }

    fn push(&mut self, address: u64) {
        self.returns[self.top] = address;
        self.top = (self.top + 1) % self.returns.len();
    }

    fn pop(&mut self) -> u64 {
        self.top = self.top.checked_sub(1).unwrap_or(self.returns.len() - 1);
        self.returns[self.top]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn predictor() -> Predictor {
        Predictor::new(1 << 14, 512, 4).unwrap()
    }

    /// Counts how many of these directions of one branch are mispredicted.
    fn wrong(predictor: &mut Predictor, directions: impl IntoIterator<Item = bool>) -> usize {
        let is_wrong = |is_taken: &bool| {
            let next = if *is_taken { 0x2000 } else { 0x1002 };
            predictor.is_mispredicted(BlockEnding::Conditional { target: 0x2000 }, 0x1000, 0x1002, next)
        };
        directions.into_iter().filter(is_wrong).count()
    }

    #[test]
    fn directions_are_learnt_from_what_came_before_them() {
        // Never taken is right at once. Always taken is wrong until the history is full, plus
        // twice.
        assert_eq!(wrong(&mut predictor(), [false; 100]), 0);
        assert_eq!(wrong(&mut predictor(), [true; 100]), 14 + 2);
        // Alternating directions, and a loop of five: once learnt, nothing is wrong any more.
        for period in [2, 5] {
            let mut predictor = predictor();
            let mut directions = (0..).map(|step| step % period != 0);
            wrong(&mut predictor, directions.by_ref().take(200));
            assert_eq!(wrong(&mut predictor, directions.take(100)), 0, "{period}");
        }
    }

    #[test]
    fn calls_return_to_where_they_came_from_as_deep_as_the_stack_is() {
        for (depth, wrong) in [(1, 0), (4, 0), (5, 1), (6, 2)] {
            let mut predictor = predictor();
            for level in 0..depth {
                let call = BlockEnding::Call { target: 0x100 * level };
                assert!(!predictor.is_mispredicted(call, 0x1000 + level, 0x1005 + level, 0x100 * level));
            }
            let returns = (0..depth).rev();
            let is_wrong = |level: &u64| predictor.is_mispredicted(BlockEnding::Return, 0x9000, 0x9001, 0x1005 + level);
            assert_eq!(returns.filter(is_wrong).count(), wrong, "{depth}");
        }
    }

    /// Acts like a trampoline of fexit: calls the function, then returns past the caller's call.
    #[test]
    fn a_return_past_a_frame_unbalances_the_stack() {
        let mut predictor = predictor();
        let call = |predictor: &mut Predictor, from: u64, to: u64| {
            assert!(!predictor.is_mispredicted(BlockEnding::Call { target: to }, from, from + 5, to));
        };
        let come_back =
            |predictor: &mut Predictor, to: u64| predictor.is_mispredicted(BlockEnding::Return, 0x9000, 0x9001, to);
        for (from, to) in [(0x100, 0x200), (0x210, 0x300), (0x300, 0x400), (0x410, 0x305)] {
            call(&mut predictor, from, to);
        }
        // The function returns to the trampoline, the trampoline to the function's caller, and the
        // caller to its own caller.
        assert!(!come_back(&mut predictor, 0x415));
        assert!(come_back(&mut predictor, 0x215));
        assert!(come_back(&mut predictor, 0x105));
    }

    #[test]
    fn an_indirect_branch_goes_where_it_went_before() {
        let mut predictor = predictor();
        let mut jump = |address, next| predictor.is_mispredicted(BlockEnding::Indirect, address, address + 2, next);
        assert!(jump(0x1000, 0x2000) && !jump(0x1000, 0x2000) && jump(0x1000, 0x3000));
        // Another branch that shares the entry.
        assert!(jump(0x1000 + 1024, 0x2000) && jump(0x1000, 0x3000));
        let mut predictor = self::predictor();
        assert!(predictor.is_mispredicted(BlockEnding::IndirectCall, 0x1000, 0x1002, 0x2000));
        assert!(!predictor.is_mispredicted(BlockEnding::Return, 0x2000, 0x2001, 0x1002));
    }

    #[test]
    fn what_an_exception_comes_before_is_not_learnt() {
        let mut predictor = predictor();
        assert!(!predictor.is_mispredicted(BlockEnding::Conditional { target: 0x2000 }, 0x1000, 0x1002, 0xf000));
        assert!(!predictor.is_mispredicted(BlockEnding::Call { target: 0x2000 }, 0x1000, 0x1005, 0xf000));
        assert_eq!((predictor.history, predictor.top), (0, 0));
    }

    proptest! {
        #[test]
        fn it_begins_again_like_a_new_one(steps in prop::collection::vec((0_u8..6, 0_u64..64, 0_u64..64), 0..200)) {
            let ending = |kind, target| match kind {
                0 => BlockEnding::Conditional { target },
                1 => BlockEnding::Call { target },
                2 => BlockEnding::IndirectCall,
                3 => BlockEnding::Indirect,
                4 => BlockEnding::Return,
                _ => BlockEnding::Other,
            };
            let all = |predictor: &mut Predictor| -> Vec<bool> {
                steps.iter().map(|&(kind, address, next)| {
                    predictor.is_mispredicted(ending(kind, next & !1), address, address + 1, next)
                }).collect()
            };
            let mut predictor = Predictor::new(16, 4, 3).unwrap();
            let first = all(&mut predictor);
            predictor.forget();
            prop_assert_eq!(first, all(&mut predictor));
        }
    }
}

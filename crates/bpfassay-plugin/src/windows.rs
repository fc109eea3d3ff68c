// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the plugin's output, which is untrusted: a guest may have compromised QEMU.

use bpfassay_results::Misses;

use crate::format::{KERNEL, MAGIC, MAGIC_MODEL};

/// Largest number of blocks of a window: the number of the plugin's counters.
const MAX_BLOCKS: u64 = 1 << 20;
const HEAD: usize = 5;
const RECORD: usize = 4;
/// Numbers that a model adds to the head and to each record.
const MISSES: usize = 4;
const WORD: usize = size_of::<u64>();

/// The executions of a block in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockExecutions {
    /// The address of the first instruction.
    pub address: u64,
    /// Number of instructions.
    pub instructions: u64,
    /// Size of the instructions in bytes.
    pub bytes: u64,
    /// How often the block was entered. An exception may have left it early.
    pub executions: u64,
    /// Misses that a model of caches and branches found; `None` without a model.
    pub misses: Option<Misses>,
}

/// The executions between two markers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The number of the window, from 1.
    pub number: u64,
    /// Instructions of user space, by the address of their page; 0 stands for unknown pages.
    pub user: Vec<(u64, u64)>,
    /// Misses that a model found in user space; `None` without a model.
    pub user_misses: Option<Misses>,
    /// Kernel blocks without a counter since the guest was started.
    pub uncounted: u64,
    /// Executed kernel blocks.
    pub blocks: Vec<BlockExecutions>,
}

/// An error for bytes that are not a window. The stream is unreadable from there on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the plugin wrote something else than windows: {problem}")]
pub struct NotAWindow {
    problem: &'static str,
}

/// A reader that accepts bytes in pieces and returns whole windows.
#[derive(Debug, Default)]
pub struct Windows {
    bytes: Vec<u8>,
}

impl Windows {
    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next window, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`NotAWindow`]; the rest of the stream is unreadable then.
    pub fn next_window(&mut self) -> Result<Option<Window>, NotAWindow> {
        let Some([magic, number, user, uncounted, count]) = words::<HEAD>(&self.bytes) else { return Ok(None) };
        let more = match magic {
            MAGIC => 0,
            MAGIC_MODEL => MISSES,
            _ => return Err(NotAWindow { problem: "no window begins where one must" }),
        };
        let (head, record) = (HEAD + more, RECORD + more);
        if count > MAX_BLOCKS {
            return Err(NotAWindow { problem: "a window with more blocks than there are counters" });
        }
        let end = WORD * (head + record * count as usize);
        let Some(records) = self.bytes.get(WORD * head..end) else { return Ok(None) };
        let user_misses = self.bytes.get(WORD * HEAD..WORD * head).and_then(misses);
        let block = |record: &[u8]| {
            let [address, instructions, bytes, executions] = words::<RECORD>(record)?;
            let misses = record.get(WORD * RECORD..).and_then(misses);
            Some(BlockExecutions { address, instructions, bytes, executions, misses })
        };
        let blocks = records.chunks_exact(WORD * record).filter_map(block);
        let (blocks, pages): (Vec<BlockExecutions>, Vec<BlockExecutions>) =
            blocks.partition(|block| block.address & KERNEL != 0);
        let page = |page: BlockExecutions| (page.address, page.instructions.saturating_mul(page.executions));
        let user = (user > 0).then_some((0, user)).into_iter().chain(pages.into_iter().map(page)).collect();
        self.bytes.drain(..end);
        Ok(Some(Window { number, user, user_misses, uncounted, blocks }))
    }
}

/// Returns the findings of a model; `None` if there are none.
fn misses(bytes: &[u8]) -> Option<Misses> {
    let [l1i, l1d, l2, mispredicted] = words::<MISSES>(bytes)?;
    Some(Misses { l1i, l1d, l2, mispredicted })
}

/// Returns the first `N` numbers in `bytes`, if there are that many.
fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (words, _) = bytes.get(..WORD * N)?.as_chunks::<WORD>();
    let mut numbers = [0; N];
    for (number, word) in numbers.iter_mut().zip(words) {
        *number = u64::from_le_bytes(*word);
    }
    Some(numbers)
}

impl Window {
    /// Returns the number of all instructions, including user space; it saturates.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        let user = self.user.iter().map(|(_, instructions)| *instructions);
        let kernel = self.blocks.iter().map(|block| block.instructions.saturating_mul(block.executions));
        user.chain(kernel).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Reads `stream` in two parts, cut at each position in turn.
    fn cut_anywhere(stream: &[u8]) -> impl Iterator<Item = Vec<Window>> {
        (0..stream.len()).map(|cut| {
            let mut windows = Windows::default();
            let mut found = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                windows.push(part);
                found.extend(std::iter::from_fn(|| windows.next_window().unwrap()));
            }
            found
        })
    }

    #[test]
    fn windows_are_read_however_they_are_cut() {
        let records = [[KERNEL + 0xf0, 3, 8, 10], [0x5000, 1, 0, 9], [KERNEL + 0xf8, 1, 4, 4]].concat();
        let stream = bytes(&[&[MAGIC, 1, 7, 0, 3], records.as_slice(), &[MAGIC, 2, 0, 5, 0]].concat());
        for found in cut_anywhere(&stream) {
            let [first, second] = found.try_into().unwrap();
            assert_eq!((first.number, first.instructions(), first.blocks.len()), (1, 7 + 9 + 30 + 4, 2));
            assert_eq!(first.user, [(0, 7), (0x5000, 9)]);
            assert_eq!((second.number, second.uncounted, second.user.len()), (2, 5, 0));
        }
    }

    #[test]
    fn what_a_model_found_is_read_with_its_blocks() {
        let head = [MAGIC_MODEL, 1, 7, 0, 2, 1, 2, 3, 4];
        let records = [[KERNEL + 0xf0, 3, 8, 10, 5, 6, 7, 8], [KERNEL + 0xf8, 1, 4, 4, 0, 0, 0, 9]].concat();
        let stream = bytes(&[head.as_slice(), &records, &[MAGIC, 2, 0, 5, 0]].concat());
        for found in cut_anywhere(&stream) {
            let [first, second] = found.try_into().unwrap();
            assert_eq!(first.instructions(), 7 + 30 + 4);
            assert_eq!(first.user_misses, Some(Misses { l1i: 1, l1d: 2, l2: 3, mispredicted: 4 }));
            let of_blocks: Vec<Misses> = first.blocks.iter().map(|block| block.misses.unwrap()).collect();
            let expected = [[5, 6, 7, 8], [0, 0, 0, 9]];
            assert_eq!(of_blocks, expected.map(|[l1i, l1d, l2, mispredicted]| Misses { l1i, l1d, l2, mispredicted }));
            assert_eq!((second.number, second.user_misses), (2, None));
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let mut windows = Windows::default();
        windows.push(&[1; 64]);
        windows.next_window().unwrap_err();
        let mut windows = Windows::default();
        windows.push(&bytes(&[MAGIC, 1, 0, 0, u64::MAX]));
        windows.next_window().unwrap_err();
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            let mut windows = Windows::default();
            windows.push(&bytes);
            while let Ok(Some(window)) = windows.next_window() {
                let _ = window.instructions();
            }
        }
    }
}

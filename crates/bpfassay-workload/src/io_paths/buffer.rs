// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers for transfers, and the data in them.

use std::ops::{Deref, DerefMut};

/// Alignment of buffers, in bytes. It suffices for O_DIRECT on any file system, and is a whole page
/// for registration.
pub(crate) const ALIGNMENT: usize = 4096;

/// Bytes at an address that is a multiple of [`ALIGNMENT`].
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// Creates a buffer of `length` zeros.
    pub(crate) fn zeroed(length: usize) -> Self {
        let memory = vec![0; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, start, length }
    }

    /// Creates a buffer of `length` bytes of the data of `seed`.
    pub(crate) fn filled(length: usize, seed: u64) -> Self {
        let mut buffer = Self::zeroed(length);
        fill(&mut buffer, seed, 0);
        buffer
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// Fills `bytes` with the data of `seed` from `offset` on.
pub(crate) fn fill(bytes: &mut [u8], seed: u64, offset: u64) {
    for (byte, position) in bytes.iter_mut().zip(offset..) {
        *byte = at(seed, position);
    }
}

/// Returns the first position at which `bytes` differ from the data of `seed` from `offset` on.
pub(crate) fn first_difference(bytes: &[u8], seed: u64, offset: u64) -> Option<u64> {
    bytes.iter().zip(offset..).find(|&(&byte, position)| byte != at(seed, position)).map(|(_, position)| position)
}

/// Returns the byte of `seed` at `position`, from the words of SplitMix64 (Steele, Lea and Flood
/// 2014). Neither shifted data nor the data of another seed pass the check.
fn at(seed: u64, position: u64) -> u8 {
    let mut word = (seed << 32).wrapping_add(position / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)).to_le_bytes()[(position % 8) as usize]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buffers_are_aligned_and_hold_their_data() {
        let buffer = Buffer::filled(10_000, 3);
        assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
        assert_eq!(buffer.len(), 10_000);
        assert_eq!(first_difference(&buffer, 3, 0), None);
        assert_eq!(first_difference(&Buffer::zeroed(100), 3, 0), Some(0));
    }

    proptest! {
        #[test]
        fn moved_foreign_and_damaged_data_are_noticed(seed in 0u64..100, shift in 1u64..10_000, damaged in 0usize..512) {
            let mut bytes = [0; 512];
            fill(&mut bytes, seed, 4096);
            prop_assert_eq!(first_difference(&bytes, seed, 4096), None);
            prop_assert!(first_difference(&bytes, seed, 4096 + shift).is_some());
            prop_assert!(first_difference(&bytes, seed + 1, 4096).is_some());
            bytes[damaged] ^= 1;
            prop_assert_eq!(first_difference(&bytes, seed, 4096), Some(4096 + damaged as u64));
        }
    }
}

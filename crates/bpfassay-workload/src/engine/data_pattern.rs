// SPDX-License-Identifier: MIT OR Apache-2.0
//! IOR's data patterns: filling buffers, and checking them.

use super::ior_random::rand_r;
use bpfassay_ior::Packet;

/// Number of words between two words that carry the file offset (4 KiB).
const STRIDE: usize = 512;

/// The multiplier of the generator for [`Packet::Random`].
const GOLDEN: u64 = 0x9e37_ffff_fffc_0001;

/// The parameters of one rank's pattern.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pattern {
    pub(crate) packet: Packet,
    /// The time stamp, or the value of `-G` in its place.
    pub(crate) stamp: u32,
    /// The value of `-G`; 0 without it. It seeds random packets for writing. `stamp` seeds them for
    /// checking.
    pub(crate) signature: i32,
}

impl Pattern {
    /// Fills the buffer of `rank`, once per repetition.
    pub(crate) fn fill(&self, buffer: &mut [u8], rank: u32) {
        match self.packet {
            Packet::Random => {}
            Packet::Incompressible => {
                let word = self.incompressible(rank);
                words(buffer).for_each(|(_, bytes)| *bytes = word.to_ne_bytes());
            }
            Packet::Offset | Packet::Timestamp => {
                words(buffer).for_each(|(index, bytes)| *bytes = self.plain(rank, index).to_ne_bytes());
            }
        }
    }

    /// Writes into the buffer what depends on the `offset` of the next transfer.
    pub(crate) fn mark(&self, buffer: &mut [u8], rank: u32, offset: u64) {
        match self.packet {
            Packet::Timestamp => {}
            Packet::Random => {
                let mut state = self.random(self.signature as u32, rank, offset);
                words(buffer).for_each(|(_, bytes)| *bytes = advance(&mut state).to_ne_bytes());
            }
            Packet::Offset | Packet::Incompressible => {
                words(buffer).step_by(STRIDE).for_each(|(index, bytes)| {
                    *bytes = marker(rank, offset, index / STRIDE).to_ne_bytes();
                });
            }
        }
    }

    /// Returns whether the buffer holds what `rank` wrote to `offset`. Always checks the whole
    /// buffer.
    pub(crate) fn holds(&self, buffer: &mut [u8], rank: u32, offset: u64) -> bool {
        let incompressible = self.incompressible(rank);
        let mut state = self.random(self.stamp, rank, offset);
        let mut good = true;
        for (index, bytes) in words(buffer) {
            let expected = match self.packet {
                Packet::Random => advance(&mut state),
                Packet::Offset | Packet::Incompressible if index % STRIDE == 0 => marker(rank, offset, index / STRIDE),
                Packet::Incompressible => incompressible,
                Packet::Offset | Packet::Timestamp => self.plain(rank, index),
            };
            good &= u64::from_ne_bytes(*bytes) == expected;
        }
        good
    }

    const fn plain(&self, rank: u32, index: usize) -> u64 {
        // The stamp is a signed int in IOR, so a stamp with the top bit set changes the rank's
        // half, too.
        (rank as u64) << 32 | (self.stamp as i32 as i64 as u64).wrapping_add(index as u64)
    }

    fn incompressible(&self, rank: u32) -> u64 {
        let mut seed = self.stamp.wrapping_add(rank);
        let high = u64::from(rand_r(&mut seed)) << 32;
        high | u64::from(rand_r(&mut seed))
    }

    fn random(&self, seed: u32, rank: u32, offset: u64) -> u64 {
        let mut seed = seed.wrapping_add(rank).wrapping_add(offset as u32);
        u64::from(rand_r(&mut seed))
    }
}

const fn marker(rank: u32, offset: u64, block: usize) -> u64 {
    (offset as u32).wrapping_mul(block as u32 + 1) as u64 | (rank as u64) << 32
}

const fn advance(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(GOLDEN) >> 3;
    *state
}

/// Returns the 8-byte words of the buffer. Transfer sizes are multiples of 8.
fn words(buffer: &mut [u8]) -> impl Iterator<Item = (usize, &mut [u8; 8])> {
    buffer.as_chunks_mut().0.iter_mut().enumerate()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_recognises_itself_and_nothing_else() {
        for &packet in Packet::ALL {
            let pattern = Pattern { packet, stamp: 573, signature: 573 };
            let mut buffer = vec![0; 16 << 10];
            pattern.fill(&mut buffer, 3);
            pattern.mark(&mut buffer, 3, 8192);
            assert!(pattern.holds(&mut buffer, 3, 8192), "{packet:?}");
            assert!(!pattern.holds(&mut buffer, 2, 8192), "{packet:?}: another rank");
            assert_eq!(pattern.holds(&mut buffer, 3, 4096), packet == Packet::Timestamp, "{packet:?}: another offset");
            buffer[12_345] ^= 1;
            assert!(!pattern.holds(&mut buffer, 3, 8192), "{packet:?}: one bit");
        }
    }
}

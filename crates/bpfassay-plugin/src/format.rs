// SPDX-License-Identifier: MIT OR Apache-2.0
//! The form of what the plugin writes, which both sides share.
//!
//! A window is a head of five numbers ([`MAGIC`], number of the window, instructions of user space, blocks that were not counted, blocks
//! that follow) and for each block four: address, instructions, bytes, executions. All are little-endian and have 64 bits.
//!
//! With a model, the first number is [`MAGIC_MODEL`], and four numbers follow the head (of user space) and each block: misses of the L1 instruction
//! cache, of the L1 data cache, of the L2 cache, mispredicted branches.

/// The first number of a window.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"BPAwin02");

/// The first number of a window with what a model found.
pub(crate) const MAGIC_MODEL: u64 = u64::from_le_bytes(*b"BPAmod02");

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The form of what the plugin writes, which both sides share.
//!
//! A window is a head of five numbers ([`MAGIC`], number of the window, instructions of user space, blocks that were not counted, blocks
//! that follow) and for each block four: address, instructions, bytes, executions. All are little-endian and have 64 bits.

/// The first number of a window.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"BPAwin02");

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The format of the plugin's output, shared by the plugin and its reader. All numbers are
//! little-endian and have 64 bits.
//!
//! A window is a head of five numbers and a record of four numbers per block:
//!
//! - The head: [`MAGIC`], the window's number, user-space instructions of no page below, uncounted
//!   blocks, and the number of blocks that follow.
//! - A record: address, instructions, bytes, executions.
//!
//! A record for user space is a page ([`PAGE`]): bytes are 0, an execution is one instruction.
//!
//! If there is a model, the first number is [`MAGIC_MODEL`]. Then four numbers follow each record
//! and the head (for all of user space). They are misses of the L1 instruction cache, the L1 data
//! cache and the L2 cache, and mispredicted branches.

/// The first number of a window without a model.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"BPAwin03");
/// The first number of a window with a model.
pub(crate) const MAGIC_MODEL: u64 = u64::from_le_bytes(*b"BPAmod03");
/// Kernel addresses have the highest bit set on all three architectures.
pub(crate) const KERNEL: u64 = 1 << 63;
/// Size of a page in bytes on all three architectures. User-space mappings, modules and code that
/// the kernel generates begin and end at page boundaries.
pub(crate) const PAGE: u64 = 4096;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The form of what the plugin writes, which both sides share.
//!
//! A window is a head of five numbers ([`MAGIC`], number of the window, instructions of user space
//! that belong to no page below, blocks that were not counted, blocks that follow) and for each
//! block four: address, instructions, bytes, executions. A block of user space is a page
//! ([`PAGE`]): its bytes are 0, and each instruction is an execution of one instruction. All are
//! little-endian and have 64 bits.
//!
//! With a model, the first number is [`MAGIC_MODEL`], and four numbers follow the head (of all of
//! user space) and each block: misses of the L1 instruction cache, of the L1 data cache, of the L2
//! cache, mispredicted branches.

/// The first number of a window.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"BPAwin03");
/// The first number of a window with what a model found.
pub(crate) const MAGIC_MODEL: u64 = u64::from_le_bytes(*b"BPAmod03");
/// Addresses of the kernel have the highest bit, on all three architectures.
pub(crate) const KERNEL: u64 = 1 << 63;
/// Bytes of a page on all three architectures. Mappings of user space begin and end at one; so do
/// code of modules and code that the kernel generates.
pub(crate) const PAGE: u64 = 4096;

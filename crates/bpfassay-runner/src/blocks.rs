// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks: executes them with guests in parallel, and stores measured ones.

pub(crate) mod block;
pub(crate) mod block_store;
pub(crate) mod pool;

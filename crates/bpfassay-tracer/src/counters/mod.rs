// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads what the attached programs count, and what they lost: maps and ring buffer, bytes to rows,
//! misses. The module `loader` attaches programs.

pub(crate) mod counting_tracer;
pub(crate) mod decode;
pub(crate) mod error;
mod maps;
pub(crate) mod misses;
mod no_preempt;
pub(crate) mod ring;
pub(crate) mod sets;
pub(crate) mod task_io;
pub(crate) mod written;

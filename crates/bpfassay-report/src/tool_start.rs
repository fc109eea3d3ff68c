// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a tool started, by what it printed: which step failed, and in which program.

mod loader_messages;
mod refused_program;
pub(crate) mod step;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's console: bytes to lines, lines to a bounded log, lines to [`KernelIncident`].

mod console_lines;
mod console_log;
mod incident;
pub(crate) mod reader;
mod watch;

pub(crate) use console_lines::LineCutter;
pub(crate) use console_log::ConsoleLog;
pub use incident::{KernelIncident, KernelIncidentKind, Severity};
pub use watch::Watch;

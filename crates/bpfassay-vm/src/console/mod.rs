// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's console: bytes to lines, lines to a bounded log, lines to [`KernelIncident`].

mod incident;
mod lines;
mod log;
pub(crate) mod reader;
mod watch;

pub use incident::{KernelIncident, KernelIncidentKind, Severity};
pub(crate) use lines::LineCutter;
pub(crate) use log::ConsoleLog;
pub use watch::Watch;

//! The guest's console: bytes to lines, lines to a bounded log, lines to [`Trouble`].

mod lines;
mod log;
mod trouble;
mod watch;

pub(crate) use lines::Lines;
pub(crate) use log::ConsoleLog;
pub use trouble::{Severity, Trouble, TroubleKind};
pub use watch::Watch;

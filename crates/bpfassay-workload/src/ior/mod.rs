//! IOR from the outside: its options, script files and JSON summary.

mod directive;
mod error;
mod options;
mod script;
mod summary;
mod words;

pub use error::OptionsError;
pub use options::{AccessOrder, Api, MmapOptions, Options, Packet, PosixOptions, ReorderRandom};
pub use script::MAX_SCRIPT;
pub use summary::{Access, MAX_SUMMARY, Moved, Repetition, Summary, SummaryError, TestSummary};
pub use words::{Invocation, Output, Plan, SummaryFormat};

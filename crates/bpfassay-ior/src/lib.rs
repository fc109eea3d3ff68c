// SPDX-License-Identifier: MIT OR Apache-2.0
//! IOR from the outside: its command-line options, its script files and its JSON summary, as types.
//!
//! Here: parsing options and scripts into the tests that they describe ([`Invocation`], [`Plan`], [`Options`]), the rules that
//! IOR itself checks before it starts, options back to arguments, and the figures of a summary ([`Summary`]). All input is
//! untrusted: sizes are bounded, and every error quotes at most a few words of it.
//! Not here: input and output of any kind, the embedded engine that does IOR's work (`bpfassay-workload`), and what a study
//! makes of a test (`bpfassay-study`).

mod args;
mod directive;
mod error;
mod options;
mod output;
mod script;
mod summary;

pub use args::{Invocation, Plan};
pub use error::OptionsError;
pub use options::{AccessOrder, Api, MmapOptions, Options, Packet, PosixOptions, ReorderRandom};
pub use output::{Output, SummaryFormat};
pub use script::MAX_SCRIPT;
pub use summary::{Access, MAX_SUMMARY, Moved, Repetition, Summary, SummaryError, TestSummary};

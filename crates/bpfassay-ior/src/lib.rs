// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types for IOR's command-line options, script files and JSON summary.
//!
//! This crate parses options and scripts into tests ([`Invocation`], [`IorPlan`], [`Options`]) and
//! turns options back into arguments. It checks the rules that IOR checks before it starts, and
//! reads the figures of a summary ([`IorSummary`]). All input is untrusted: sizes are bounded, and
//! errors quote at most a few words.
//!
//! The crate does no input or output. `bpfassay-workload` has the embedded engine that does IOR's
//! work. `bpfassay-study` uses tests in studies.

mod args;
mod directive;
mod error;
mod ior_options;
mod ior_output;
mod ior_script;
mod ior_summary;

pub use args::{Invocation, IorPlan};
pub use error::OptionsError;
pub use ior_options::{AccessOrder, Api, MmapOptions, Options, Packet, PosixOptions, ReorderRandom};
pub use ior_output::{Output, SummaryFormat};
pub use ior_script::MAX_SCRIPT;
pub use ior_summary::{Access, IorSummary, MAX_SUMMARY, PhaseBytes, Repetition, SummaryError, TestSummary};

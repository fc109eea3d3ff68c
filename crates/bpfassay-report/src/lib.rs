// SPDX-License-Identifier: MIT OR Apache-2.0
//! Derives results from a journal, and renders them.
//!
//! - [`mod@derive`]: from a journal to results
//! - [`mod@compare`]: two results
//! - [`mod@trend`]: a series of results
//! - [`mod@check_results`]: whether a results directory is intact
//! - [`mod@conclusion`]: what results mean for the exit code
//! - [`render`]: formats for people and programs
//!
//! All but [`mod@check_results`] are pure functions of values. Other crates have the journal and the
//! types of results (bpfassay-results), estimators (bpfassay-stats), the execution
//! (bpfassay-runner) and studies (bpfassay-study).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod check_results;
pub mod compare;
pub mod conclusion;
pub mod derive;
mod labels;
pub mod render;
mod tool_start;
pub mod trend;

pub use derive::{Streamed, StreamedError, derive, derive_all, derive_in, overheads_again, sampling::to_do};
pub use labels::reason;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What follows from a journal, and how it is shown.
//!
//! Here: [`mod@derive`] (from a journal to results), [`mod@compare`] (two results), [`mod@trend`]
//! (many), [`mod@check`] (whether a results directory is whole), [`mod@conclusion`] (what results
//! come to), [`render`] (what people and programs read). All but [`mod@check`] are pure functions
//! of values. Not here: the journal and the types of results (bpfassay-results), estimators
//! (bpfassay-stats), running anything (bpfassay-runner), what a study is (bpfassay-study).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod check;
pub mod compare;
pub mod conclusion;
pub mod derive;
mod labels;
pub mod render;
pub mod trend;

pub use derive::{Streamed, StreamedError, derive, derive_all, derive_in, overheads_again, sampling::to_do};

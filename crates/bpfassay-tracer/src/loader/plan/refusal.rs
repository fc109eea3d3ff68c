// SPDX-License-Identifier: MIT OR Apache-2.0
//! A failure as both loaders report it.

use std::io;

use bpfassay_protocol::tracer::Step;

/// A step that failed, before it becomes a refusal.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) program: Option<String>,
    /// Has the kernel's error number, if the kernel refused.
    pub(crate) error: io::Error,
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A failure, in the form that both loaders report.

use std::io;

use bpfassay_protocol::tracer_messages::Step;

/// A failed step, before it becomes a refusal.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) program: Option<String>,
    /// The error, with the kernel's error number if the kernel refused.
    pub(crate) error: io::Error,
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A failure as both loaders report it.

use std::io;

use bpfassay_protocol::tracer::{Refusal, Step};

/// A step that failed, before it becomes a [`Refusal`].
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) program: Option<String>,
    /// Has the kernel's error number, if the kernel refused.
    pub(crate) error: io::Error,
}

/// A refusal by this program: no program of the object is to blame, and there is no error number of the kernel.
pub(crate) fn refusal(step: Step, message: String) -> Refusal {
    Refusal { step, program: None, errno: None, message, verifier: None, findings: Vec::new(), prototypes: None }
}

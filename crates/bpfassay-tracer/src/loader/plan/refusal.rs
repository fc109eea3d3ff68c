// SPDX-License-Identifier: MIT OR Apache-2.0
//! A failure as both loaders report it.

use std::io;

use bpfassay_protocol::tracer::{Refusal, Step};

/// A step that failed, before it becomes a [`Refusal`].
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) program: Option<String>,
    /// Carries the kernel's error number, if it was the kernel that refused.
    pub(crate) error: io::Error,
}

/// A refusal by this program: no program of the object is to blame, and the kernel gave no error number.
pub(crate) fn refusal(step: Step, message: String) -> Refusal {
    Refusal { step, program: None, errno: None, message, verifier: None, findings: Vec::new(), prototypes: None }
}

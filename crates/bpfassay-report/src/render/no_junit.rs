// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replaces `junit` in builds without that feature: JUnit is refused.

use bpfassay_results::Results;

use super::format::{FormatError, ReportFormat};
use crate::compare::Comparison;

pub(super) const FORMAT: ReportFormat = ReportFormat {
    name: "junit",
    about: "Test cases, for CI systems; not in this program, which was built without the feature `full`",
    file: None,
    render: |results, _| Ok(junit(results)?.into()),
};

/// Refuses to render results as JUnit.
///
/// # Errors
/// Always [`FormatError::NoJunit`].
pub fn junit(_: &Results) -> Result<String, FormatError> {
    Err(FormatError::NoJunit)
}

/// Refuses to render a comparison as JUnit.
///
/// # Errors
/// Always [`FormatError::NoJunit`].
pub fn comparison_junit(_: &Comparison) -> Result<String, FormatError> {
    Err(FormatError::NoJunit)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The destination and format of IOR's results.

use std::fmt;

/// The format of IOR's results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SummaryFormat {
    /// Tables for people.
    #[default]
    Default,
    /// One JSON value.
    Json,
    /// One line per repetition and phase.
    Csv,
}

impl SummaryFormat {
    /// Returns IOR's name of the format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Json => "JSON",
            Self::Csv => "CSV",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Default, Self::Json, Self::Csv].into_iter().find(|format| format.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for SummaryFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The destination of results (`-O summaryFormat=…`, `-O summaryFile=…`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Output {
    /// The format.
    pub format: SummaryFormat,
    /// The file; `None` is standard output.
    pub file: Option<String>,
}

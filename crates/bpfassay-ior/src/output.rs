// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the results of IOR go, and in which form.

use std::fmt;

/// The form of IOR's results.
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
    /// IOR's name for it.
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

/// Where results go (`-O summaryFormat=…`, `-O summaryFile=…`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Output {
    /// In which form.
    pub format: SummaryFormat,
    /// To which file; `None`: standard output.
    pub file: Option<String>,
}

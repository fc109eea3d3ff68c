// SPDX-License-Identifier: MIT OR Apache-2.0
//! Complaints about a file, with their places.

use std::{
    cell::{Cell, RefCell},
    fmt::{self, Display},
    ops::Range,
};

/// Highest number of complaints that are kept for one file.
pub(super) const MAX_COMPLAINTS: usize = 50;

/// A file is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Invalid {
    /// The file's name in messages.
    pub origin: String,
    /// The text of the file as it was read. It is untrusted.
    pub text: String,
    /// The complaints in the order of the text; never empty.
    pub complaints: Vec<Complaint>,
    /// Number of further complaints that were not kept.
    pub omitted: usize,
}

/// A complaint about a place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// The place, as a range of bytes of the text.
    pub span: Range<usize>,
    /// The message. It describes the fault and the correct form, and can quote the file.
    pub message: String,
    /// A suggestion, such as the nearest known key.
    pub help: Option<String>,
}

impl Invalid {
    /// Returns the line and column at which `complaint` begins, in characters, from 1.
    #[must_use]
    pub fn place(&self, complaint: &Complaint) -> (usize, usize) {
        let before = self.text.get(..complaint.span.start).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, before.get(line_start..).unwrap_or_default().chars().count() + 1)
    }
}

/// Writes a line for each complaint: `study.toml:3:1: unknown key …`.
impl Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, complaint) in self.complaints.iter().enumerate() {
            let (line, column) = self.place(complaint);
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}:{line}:{column}: {}", self.origin, complaint.message)?;
            if let Some(help) = &complaint.help {
                write!(f, ": {help}")?;
            }
        }
        if self.omitted > 0 {
            write!(f, "\n{} more errors in {}", self.omitted, self.origin)?;
        }
        Ok(())
    }
}

/// Represents a value that could not be read. The document has a complaint about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported(pub(super) ());

/// A file that is being read.
#[derive(Default)]
pub(super) struct Document {
    pub(super) complaints: RefCell<Vec<Complaint>>,
    pub(super) omitted: Cell<usize>,
}

impl Document {
    pub(super) fn report(&self, span: Range<usize>, message: String, help: Option<String>) -> Reported {
        let mut complaints = self.complaints.borrow_mut();
        if complaints.len() < MAX_COMPLAINTS {
            complaints.push(Complaint { span, message, help });
        } else {
            self.omitted.set(self.omitted.get() + 1);
        }
        Reported(())
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The journal: append-only JSON lines. Each line is on disk before the next one begins.
//!
//! The first line is the [`JournalHeader`], every other line is a [`JournalEntry`]. A crash loses
//! at most the line being written. A last line without a newline is *torn* and is set aside. Any
//! other unreadable line is an error that names the line.
//!
//! Two checks detect damage. Every line carries a sum over itself and all lines before it
//! (`chain`). The entries must be possible under the plan in the header (`sound`).
//!
//! A journal has a single writer, which holds a lock on the file (`flock`). The system releases the
//! lock when the process dies.

#![allow(clippy::disallowed_methods, reason = "the path is only shown in a message")]

mod chain;
mod counted_entries;
mod provisioned;
mod published;
mod read_journal;
mod sound;
mod texts;
mod write;

use std::{io, path::PathBuf};

pub(crate) use self::chain::hex;
pub use self::{
    chain::JournalDigest,
    counted_entries::{Again, CountedEntries, Past, PastBoot, ToDo},
    texts::{TextPlace, Texts},
    write::Journal,
};
use crate::{JournalEntry, JournalHeader, directory::OpenDirectory};

/// Version of the journal's format.
pub const JOURNAL_VERSION: u32 = 4;

/// Name of the journal in a results directory.
pub const FILE_NAME: &str = "journal.jsonl";

/// Name of the file in a results directory that torn lines are moved to.
pub const TORN_FILE_NAME: &str = "journal.torn";

/// Length limit of all lines but the first, in bytes.
pub const MAX_LINE: usize = 64 << 20;

/// Length limit of the first line, in bytes. It holds the plan
/// ([`bpfassay_study::expand::MAX_BYTES`]) and the provenance.
pub const MAX_HEADER: usize = 768 << 20;

/// Size limit of journals that are read, in bytes.
pub const MAX_FILE: u64 = 8 << 30;

/// Why a journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A system call failed.
    #[error("cannot {action} {}{}", path.display(), advice(action, source))]
    Io {
        /// The operation that failed, such as `create`, `read`, `append to`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The directory already has a journal.
    #[error("{} exists already: resume it with --resume, or choose another directory", path.display())]
    Exists {
        /// The journal.
        path: PathBuf,
    },
    /// The path is not a regular file.
    #[error("{} is a pipe, a device, a directory or a symbolic link: put a regular file there, or choose another directory", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file has another hard link, so a write would change another file, too.
    #[error(
        "{} has another name (a hard link), and what is added would be there, too: put a copy in its place, or choose another directory",
        path.display()
    )]
    HasOtherName {
        /// The file.
        path: PathBuf,
    },
    /// The path, or a parent of it, is not a directory.
    #[error("{} is no directory: choose another one for the results", path.display())]
    NotADirectory {
        /// The path that is not a directory.
        path: PathBuf,
    },
    /// Another process is writing the journal.
    #[error("{} is being written by another process: wait for it to end, or choose another directory", path.display())]
    Locked {
        /// The journal.
        path: PathBuf,
    },
    /// A line is damaged or impossible.
    #[error("{}:{line}: {message}: the file was changed or damaged; restore it, or start again in another directory", path.display())]
    Corrupt {
        /// The journal.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The fault of the line.
        message: String,
    },
    /// Another version of this program wrote the journal.
    #[error("{} has version {found}, this program writes version {}: use the version that began it", path.display(), JOURNAL_VERSION)]
    Version {
        /// The journal.
        path: PathBuf,
        /// The version found.
        found: u64,
    },
    /// The file or a line exceeds its limit.
    #[error("{}: {what} is larger than {limit} bytes: is it a journal?", path.display())]
    TooLarge {
        /// The journal.
        path: PathBuf,
        /// Either `the file` or `line N`.
        what: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// An entry has no JSON form.
    #[error("cannot write an entry to {} as JSON", path.display())]
    Json {
        /// The journal.
        path: PathBuf,
        /// The serializer's error.
        #[source]
        source: serde_json::Error,
    },
    /// An earlier write failed. The journal's whole lines are intact, but nothing can be added.
    #[error("{} could not be written before, so nothing more is added to it: see the first error", path.display())]
    Failed {
        /// The journal.
        path: PathBuf,
    },
}

fn advice(action: &str, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": the disk is full; free some space, then resume with --resume"
        }
        io::ErrorKind::PermissionDenied => ": check who may write there, or choose another directory",
        io::ErrorKind::ReadOnlyFilesystem => ": nothing can be written there; choose another directory",
        io::ErrorKind::NotFound if action == "open" => ": name the results directory of a run that was begun",
        _ => "",
    }
}

/// The contents of a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalContents {
    /// The first line.
    pub header: JournalHeader,
    /// The other lines, in order.
    pub entries: Vec<JournalEntry>,
    /// The torn last line, if there is one.
    pub torn: Option<Torn>,
    /// The digest of the whole lines; `None` if they were not read from a file.
    pub digest: Option<JournalDigest>,
}

/// An incomplete last line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// Line number, from 1.
    pub line: usize,
    /// Length of the torn line in bytes.
    pub bytes: usize,
}

impl JournalContents {
    /// Reads the journal in `directory` without changing it. Another process can be writing it.
    ///
    /// # Errors
    /// - [`JournalError::Io`], [`JournalError::NotAFile`], [`JournalError::TooLarge`]: the file
    ///   cannot be read.
    /// - [`JournalError::Version`]: another version wrote it.
    /// - [`JournalError::Corrupt`]: a line is damaged, or impossible under the plan.
    pub fn read(directory: &std::path::Path) -> Result<Self, JournalError> {
        let opened = OpenDirectory::open(directory)
            .map_err(|source| JournalError::io("read", &directory.join(FILE_NAME), source))?;
        Self::read_in(&opened)
    }

    /// Like [`JournalContents::read`], in an open directory.
    ///
    /// # Errors
    /// The errors of [`JournalContents::read`].
    pub fn read_in(directory: &OpenDirectory) -> Result<Self, JournalError> {
        read_journal::read(directory)
    }

    /// Reads a journal outside a results directory from `file`, at the current position. `path`
    /// names it in messages, and `limit` is its largest size in bytes.
    ///
    /// # Errors
    /// The errors of [`JournalContents::read`], and [`JournalError::TooLarge`] beyond `limit`.
    pub fn read_file(path: &std::path::Path, file: std::fs::File, limit: u64) -> Result<Self, JournalError> {
        read_journal::read_file(path, file, limit.min(MAX_FILE))
    }

    /// Returns the text of a journal with these contents, which [`JournalContents::read_file`] can
    /// read.
    /// `path` names it in messages.
    ///
    /// # Errors
    /// [`JournalError::Json`] if a line has no JSON form; [`JournalError::TooLarge`] if a line is
    /// too long.
    pub fn text(&self, path: &std::path::Path) -> Result<Vec<u8>, JournalError> {
        write::text(path, &self.header, &self.entries)
    }
}

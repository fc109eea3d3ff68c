// SPDX-License-Identifier: MIT OR Apache-2.0
//! The journal: append-only lines of JSON, each on disk before the next is begun.
//!
//! The first line is the [`Header`], every other an [`Entry`]. A crash loses at most the line being
//! written: a last line without its newline is *torn* and set aside; anything else that cannot be
//! read is an error that names the line. Every line carries a sum over itself and all lines before
//! it (`chain`), and what the lines say must be possible under the plan in the header (`sound`):
//! damage does not go unnoticed. One writer at a time: it holds a lock on the file (`flock`), which
//! the system releases when the writer dies.

#![allow(clippy::disallowed_methods, reason = "the path is only shown in a message")]

mod chain;
mod provisioned;
mod published;
mod read;
mod sound;
mod standing;
mod texts;
mod write;

use std::{io, path::PathBuf};

pub(crate) use self::chain::hex;
pub use self::{
    chain::JournalDigest,
    standing::{Again, Past, PastBoot, Standing, ToDo},
    texts::{Place, Texts},
    write::Journal,
};
use crate::{Entry, Header, directory::OpenDirectory};

/// Version of the journal's format.
pub const JOURNAL_VERSION: u32 = 4;

/// File name of the journal in a results directory.
pub const FILE_NAME: &str = "journal.jsonl";

/// File name, in a results directory, that torn lines are moved to.
pub const TORN_FILE_NAME: &str = "journal.torn";

/// Longest line that is written and read, in bytes, but for the first.
pub const MAX_LINE: usize = 64 << 20;

/// Longest first line, in bytes: it has the plan in it ([`bpfassay_study::expand::MAX_BYTES`]), and
/// what it is done with.
pub const MAX_HEADER: usize = 768 << 20;

/// Largest journal that is read, in bytes.
pub const MAX_FILE: u64 = 8 << 30;

/// Why a journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system refused.
    #[error("cannot {action} {}{}", path.display(), advice(action, source))]
    Io {
        /// The operation that failed (`create`, `read`, `append to`).
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// There is a journal already.
    #[error("{} exists already: resume it with --resume, or choose another directory", path.display())]
    Exists {
        /// The journal.
        path: PathBuf,
    },
    /// There is something in the place of a file that is none.
    #[error("{} is a pipe, a device, a directory or a symbolic link: put a regular file there, or choose another directory", path.display())]
    NotAFile {
        /// What was to be a file.
        path: PathBuf,
    },
    /// What is added to the file would be in another place, too.
    #[error(
        "{} has another name (a hard link), and what is added would be there, too: put a copy in its place, or choose another directory",
        path.display()
    )]
    HasOtherName {
        /// The file.
        path: PathBuf,
    },
    /// There is something else in the place of the directory.
    #[error("{} is no directory: choose another one for the results", path.display())]
    NotADirectory {
        /// What was to be a directory, or to hold one.
        path: PathBuf,
    },
    /// Another process writes it.
    #[error("{} is being written by another process: wait for it to end, or choose another directory", path.display())]
    Locked {
        /// The journal.
        path: PathBuf,
    },
    /// A line is not what it should be.
    #[error("{}:{line}: {message}: the file was changed or damaged; restore it, or start again in another directory", path.display())]
    Corrupt {
        /// The journal.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The fault.
        message: String,
    },
    /// The journal was written by another version of this program.
    #[error("{} has version {found}, this program writes version {}: use the version that began it", path.display(), JOURNAL_VERSION)]
    Version {
        /// The journal.
        path: PathBuf,
        /// The version found.
        found: u64,
    },
    /// The file or a line of it is larger than any journal.
    #[error("{}: {what} is larger than {limit} bytes: is it a journal?", path.display())]
    TooLarge {
        /// The journal.
        path: PathBuf,
        /// `the file` or `line N`.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// An entry has no JSON form.
    #[error("cannot write an entry to {} as JSON", path.display())]
    Json {
        /// The journal.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The journal failed earlier; what it holds is whole, but no more can be added.
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
pub struct Contents {
    /// The first line.
    pub header: Header,
    /// The others, in order.
    pub entries: Vec<Entry>,
    /// A torn last line, if there was one.
    pub torn: Option<Torn>,
    /// The digest of the whole lines; `None` where they were not read from a file.
    pub digest: Option<JournalDigest>,
}

/// A last line that was not written to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// Its number, from 1.
    pub line: usize,
    /// How many bytes of it there are.
    pub bytes: usize,
}

impl Contents {
    /// Reads the journal in `directory` without changing it; another process may be writing it.
    ///
    /// # Errors
    /// [`JournalError::Io`], [`JournalError::NotAFile`] or [`JournalError::TooLarge`] where the file cannot be read, [`JournalError::Version`] where another
    /// version wrote it, [`JournalError::Corrupt`] where a line is damaged, or impossible under the
    /// plan.
    pub fn read(directory: &std::path::Path) -> Result<Self, JournalError> {
        let opened = OpenDirectory::open(directory)
            .map_err(|source| JournalError::io("read", &directory.join(FILE_NAME), source))?;
        Self::read_in(&opened)
    }

    /// The same in a directory that is open.
    ///
    /// # Errors
    /// As [`Contents::read`].
    pub fn read_in(directory: &OpenDirectory) -> Result<Self, JournalError> {
        read::read(directory)
    }

    /// Reads the journal in the open `file`, from where it stands: one that is not in a results
    /// directory. `path` names it in messages, and `limit` is the most bytes that it may have.
    ///
    /// # Errors
    /// As [`Contents::read`]; [`JournalError::TooLarge`] beyond `limit`.
    pub fn read_file(path: &std::path::Path, file: std::fs::File, limit: u64) -> Result<Self, JournalError> {
        read::read_file(path, file, limit.min(MAX_FILE))
    }

    /// The text of the journal that holds this: what [`Contents::read_file`] reads. `path` names it
    /// in messages.
    ///
    /// # Errors
    /// [`JournalError::Json`] where a line has no JSON form; [`JournalError::TooLarge`] where a line is too long.
    pub fn text(&self, path: &std::path::Path) -> Result<Vec<u8>, JournalError> {
        write::text(path, &self.header, &self.entries)
    }
}

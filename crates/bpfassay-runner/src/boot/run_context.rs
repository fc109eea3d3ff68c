// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared state of all blocks: the journal that records events, and the observer.

#![allow(clippy::disallowed_methods, reason = "the path is only shown in a message")]

use std::{
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use bpfassay_results::{Journal, JournalEntry, JournalError, OpenDirectory};
use bpfassay_study::Study;
use tokio_util::sync::CancellationToken;

use crate::{
    boot::host_setup::HostSetupError,
    observer::{Happening, Observer},
};

/// Directory of console logs in a results directory.
pub const LOGS: &str = "logs";

/// Shared state of the execution of all blocks.
pub struct RunContext<'a> {
    /// The study of the blocks.
    pub study: &'a Study,
    /// The directory of logs in the results directory.
    pub logs: &'a OpenDirectory,
    /// The journal that records events.
    pub journal: &'a Mutex<Journal>,
    /// Receives the progress.
    pub observer: &'a dyn Observer,
    /// Ends the execution early when it is cancelled.
    pub cancel: &'a CancellationToken,
    /// Also receives every entry of a block that a store can keep.
    pub recorded: Option<&'a Mutex<Vec<JournalEntry>>>,
}

/// Why the whole execution must end.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// The journal cannot be written any more.
    #[error("the journal cannot be written, so nothing measured from here on would be kept")]
    Journal(#[from] JournalError),
    /// The host set-up lacks something.
    #[error("cannot assemble a guest")]
    HostSetup(#[from] HostSetupError),
}

/// Why a plan could not be executed completely. The journal has the earlier records.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// Something that every block needs failed.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// A directory could not be created.
    #[error("could not create {what}")]
    Directory {
        /// The directory.
        what: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

impl RunContext<'_> {
    /// Appends `entry` to the journal.
    ///
    /// # Errors
    /// [`JournalError`] if this or an earlier entry cannot be written.
    pub(crate) fn append(&self, entry: &JournalEntry) -> Result<(), JournalError> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).append(entry)?;
        if let Some(recorded) = self.recorded {
            recorded.lock().unwrap_or_else(PoisonError::into_inner).push(entry.clone());
        }
        Ok(())
    }

    /// Appends `entries`, which were measured before.
    ///
    /// # Errors
    /// The errors of [`Self::append`].
    pub(crate) fn append_all(&self, entries: &[JournalEntry]) -> Result<(), JournalError> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).append_all(entries)
    }

    pub(crate) fn report(&self, progress: &Happening<'_>) {
        self.observer.progress(progress);
    }
}

/// Creates the directory of logs in the results directory `directory`, and opens it.
///
/// # Errors
/// [`RunnerError::Directory`] if the directory cannot be created, or a symbolic link has its name.
pub fn make_logs(directory: &OpenDirectory) -> Result<OpenDirectory, RunnerError> {
    let what = directory.path().join(LOGS).display().to_string();
    directory.make_directory(LOGS).map_err(|source| RunnerError::Directory { what, source })
}

/// Milliseconds since 1970-01-01 UTC; 0 if the host's clock is before that.
#[must_use]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

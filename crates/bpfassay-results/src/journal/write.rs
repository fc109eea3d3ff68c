// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing a journal.

#![allow(
    clippy::disallowed_methods,
    reason = "the path is shown in messages; the file system of its directory is looked at"
)]

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    FILE_NAME, JournalContents, JournalDigest, JournalError, MAX_FILE, MAX_HEADER, MAX_LINE, TORN_FILE_NAME,
    read_journal,
};
use crate::{
    JournalEntry, JournalHeader,
    directory::{Draft, OpenDirectory},
};

/// A journal open for writing. Dropping it releases the lock.
#[derive(Debug)]
pub struct Journal {
    directory: OpenDirectory,
    path: PathBuf,
    file: File,
    /// Digest of the lines written so far.
    chain: JournalDigest,
    failed: bool,
}

impl Journal {
    /// Checks whether a journal can be created in `directory`, without creating anything. Serves as
    /// an early check before work that ends in [`Journal::create`].
    ///
    /// # Errors
    /// [`JournalError::Exists`] if there is a journal; [`JournalError::NotADirectory`] if a part of
    /// the path is a file; [`JournalError::Io`] if the directory is not writable.
    pub fn may_create(directory: &Path) -> Result<(), JournalError> {
        let path = directory.join(FILE_NAME);
        let absolute = std::path::absolute(directory).map_err(|source| JournalError::Io {
            action: "find",
            path: directory.to_path_buf(),
            source,
        })?;
        let mut ancestors = absolute.ancestors().map(|there| (there, fs::metadata(there)));
        let Some((there, metadata)) = ancestors.find_map(|(there, found)| Some((there, found.ok()?))) else {
            return Ok(());
        };
        if !metadata.is_dir() {
            return Err(JournalError::NotADirectory { path: there.to_path_buf() });
        }
        if path.symlink_metadata().is_ok() {
            return Err(JournalError::Exists { path });
        }
        let writable = rustix::fs::access(there, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
        writable.map_err(|error| JournalError::Io {
            action: "write to",
            path: there.to_path_buf(),
            source: error.into(),
        })
    }

    /// Creates a journal in `directory`, and the directory if absent.
    ///
    /// # Errors
    /// The errors of [`Journal::create_in`], and [`JournalError::Io`] if the directory cannot be
    /// created.
    pub fn create(directory: &Path, header: &JournalHeader) -> Result<Self, JournalError> {
        let opened = OpenDirectory::make(directory).map_err(|source| JournalError::Io {
            action: "create",
            path: directory.to_path_buf(),
            source,
        })?;
        Self::create_in(opened, header)
    }

    /// Creates a journal in `directory`.
    ///
    /// # Errors
    /// - [`JournalError::Exists`]: there is one already.
    /// - [`JournalError::Io`]: the file cannot be written.
    /// - [`JournalError::Locked`]: another process has the lock.
    /// - [`JournalError::Json`], [`JournalError::TooLarge`]: `header` cannot be written.
    pub fn create_in(directory: OpenDirectory, header: &JournalHeader) -> Result<Self, JournalError> {
        let path = directory.path().join(FILE_NAME);
        let io = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => JournalError::Exists { path: path.clone() },
            _ => JournalError::Io { action: "create", path: path.clone(), source: error },
        };
        if directory.has(FILE_NAME).map_err(io)? {
            return Err(JournalError::Exists { path });
        }
        // The file gets its name after the header is written. A run killed before that has not
        // begun, and can be started again.
        let of_draft = directory.clone();
        let (draft, file) = Draft::new(&of_draft, FILE_NAME).map_err(io)?;
        lock(&file, &path)?;
        let mut journal = Self { directory, path: path.clone(), file, chain: JournalDigest::default(), failed: false };
        journal.write(header, MAX_HEADER)?;
        draft.name(&journal.file).map_err(io)?;
        // The file's name must survive a crash, as the contents do.
        journal.directory.sync().map_err(|source| JournalError::Io {
            action: "sync",
            path: journal.directory.path().to_path_buf(),
            source,
        })?;
        Ok(journal)
    }

    /// Opens the journal in `directory` for more entries. Moves a torn last line to
    /// [`TORN_FILE_NAME`] first.
    ///
    /// # Errors
    /// The errors of [`Journal::resume_in`], and [`JournalError::Io`] if the directory cannot be
    /// opened.
    pub fn resume(directory: &Path) -> Result<(Self, JournalContents), JournalError> {
        let opened = OpenDirectory::open(directory)
            .map_err(|source| JournalError::io("open", &directory.join(FILE_NAME), source))?;
        Self::resume_in(opened)
    }

    /// Like [`Journal::resume`], in an open directory.
    ///
    /// # Errors
    /// - The errors of [`JournalContents::read`].
    /// - [`JournalError::HasOtherName`]: the journal has another hard link.
    /// - [`JournalError::Locked`]: another process is writing it.
    /// - [`JournalError::Io`]: a torn line cannot be moved.
    pub fn resume_in(directory: OpenDirectory) -> Result<(Self, JournalContents), JournalError> {
        let path = directory.path().join(FILE_NAME);
        let io = |action, path: &Path| {
            let path = path.to_path_buf();
            move |source| JournalError::io(action, &path, source)
        };
        let mut file = directory.append(FILE_NAME).map_err(io("open", &path))?;
        lock(&file, &path)?;
        let contents = read_journal::read_file(&path, file.try_clone().map_err(io("read", &path))?, MAX_FILE)?;
        if let Some(torn) = &contents.torn {
            let length = file.metadata().map_err(io("read", &path))?.len();
            let whole = length - torn.bytes as u64;
            let mut rest = Vec::new();
            file.seek(SeekFrom::Start(whole)).and_then(|_| file.read_to_end(&mut rest)).map_err(io("read", &path))?;
            rest.push(b'\n');
            let aside = directory.path().join(TORN_FILE_NAME);
            let kept = match directory.append(TORN_FILE_NAME) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => directory.create_new(TORN_FILE_NAME),
                kept => kept,
            };
            let mut kept = kept.map_err(io("open", &aside))?;
            kept.write_all(&rest).and_then(|()| kept.sync_data()).map_err(io("append to", &aside))?;
            file.set_len(whole).and_then(|()| file.sync_data()).map_err(io("shorten", &path))?;
        }
        let chain = contents.digest.clone().unwrap_or_default();
        Ok((Self { directory, path, file, chain, failed: false }, contents))
    }

    /// Appends `entry`. It is on disk when this returns.
    ///
    /// # Errors
    /// [`JournalError::Io`], after which the journal accepts no more entries;
    /// [`JournalError::Json`]; [`JournalError::TooLarge`], after which it accepts none either.
    pub fn append(&mut self, entry: &JournalEntry) -> Result<(), JournalError> {
        self.write(entry, MAX_LINE)
    }

    /// Appends an entry that this program would not write.
    #[cfg(test)]
    pub(super) fn append_value(&mut self, value: &serde_json::Value) -> Result<(), JournalError> {
        self.write(value, MAX_LINE)
    }

    /// Appends all of `entries`. They are on disk when this returns; a crash before that can lose
    /// any of them. Suits data that was measured earlier.
    ///
    /// # Errors
    /// The errors of [`Journal::append`].
    pub fn append_all<'a>(&mut self, entries: impl IntoIterator<Item = &'a JournalEntry>) -> Result<(), JournalError> {
        entries.into_iter().try_for_each(|entry| self.put(entry, MAX_LINE))?;
        self.sync()
    }

    /// The journal's directory.
    #[must_use]
    pub const fn directory(&self) -> &OpenDirectory {
        &self.directory
    }

    /// Path of the journal's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write<T: Serialize>(&mut self, value: &T, limit: usize) -> Result<(), JournalError> {
        self.put(value, limit)?;
        self.sync()
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        let synced = self.file.sync_data();
        self.written(synced)
    }

    fn put<T: Serialize>(&mut self, value: &T, limit: usize) -> Result<(), JournalError> {
        if self.failed {
            return Err(JournalError::Failed { path: self.path.clone() });
        }
        let line = line(&mut self.chain, value, &self.path, limit).inspect_err(|error| {
            // Sums of later lines would include this one.
            self.failed |= matches!(error, JournalError::TooLarge { .. });
        })?;
        let written = self.file.write_all(&line);
        self.written(written)
    }

    /// After a failed write, nothing more is appended.
    fn written(&mut self, written: io::Result<()>) -> Result<(), JournalError> {
        written.map_err(|source| {
            // Part of the line can be in the file. A further line would make the journal corrupt
            // instead of torn.
            self.failed = true;
            JournalError::Io { action: "append to", path: self.path.clone(), source }
        })
    }
}

/// Makes the next line of a journal from `value`. Readers refuse a line longer than `limit`.
fn line<T: Serialize>(
    chain: &mut JournalDigest,
    value: &T,
    path: &Path,
    limit: usize,
) -> Result<Vec<u8>, JournalError> {
    let json = |source| JournalError::Json { path: path.to_owned(), source };
    let line = chain.seal(&serde_json::to_vec(value).map_err(json)?);
    match line.len() > limit {
        false => Ok(line),
        true => {
            let what = "a line to be written".to_owned();
            Err(JournalError::TooLarge { path: path.to_owned(), what, limit: limit as u64 })
        }
    }
}

/// Returns the text of a journal.
///
/// # Errors
/// The errors of [`line`].
pub(super) fn text(path: &Path, header: &JournalHeader, entries: &[JournalEntry]) -> Result<Vec<u8>, JournalError> {
    let mut chain = JournalDigest::default();
    let mut text = line(&mut chain, header, path, MAX_HEADER)?;
    for entry in entries {
        text.append(&mut line(&mut chain, entry, path, MAX_LINE)?);
    }
    Ok(text)
}

fn lock(file: &File, path: &Path) -> Result<(), JournalError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => JournalError::Locked { path: path.to_path_buf() },
        TryLockError::Error(source) => JournalError::Io { action: "lock", path: path.to_path_buf(), source },
    })
}

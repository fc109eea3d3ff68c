// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory as a store. Other hosts and other users can write to it at the same time. Everything
//! below the directory is opened relative to descriptors and never through a symbolic link. An
//! entry appears under its name by a rename, so it is always whole.

#![allow(
    clippy::disallowed_methods,
    reason = "the store is a directory of the user's own, and names in it are digests and fixed words"
)]

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::SystemTime,
};

use bpfassay_results::{JournalContents, JournalError};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat},
    io::Errno,
};

use super::{
    key::StoreKey,
    store_error::{BlockStoreError, MAX_ENTRY},
};
use crate::boot::run_context::unix_ms;

/// The directory of the entries, which marks a directory as a store. Its name has the version of
/// the entries' form.
pub(super) const BLOCKS: &str = "bpfassay-blocks-1";
/// Directory in which entries are written before they get their name.
const DRAFTS: &str = "new";
/// Directory for entries that are damaged or do not reproduce.
pub(super) const ASIDE: &str = "aside";
/// How the names of entries end.
pub(super) const ENTRY: &str = ".jsonl";
/// How the names of drafts end.
const DRAFT: &str = ".draft";
/// A draft that was last written this many seconds ago belongs to a process that was killed.
const ABANDONED: i64 = 24 * 3600;
/// Highest number of entries that are listed.
pub(super) const MOST: usize = 1 << 20;

/// A directory that is a store.
#[derive(Debug)]
pub(super) struct StoreDirectory {
    /// The path that the user gave, for messages.
    path: PathBuf,
    blocks: OwnedFd,
}

impl StoreDirectory {
    /// Opens the store in `directory`, or creates a store in an empty or missing directory.
    ///
    /// # Errors
    /// [`BlockStoreError::NotAStore`] if the directory has other things in it.
    /// [`BlockStoreError::Io`] if the store cannot be created or opened.
    pub(super) fn open(directory: &Path) -> Result<Self, BlockStoreError> {
        fs::create_dir_all(directory).map_err(io("make", directory))?;
        match Self::existing(directory) {
            Err(BlockStoreError::NoStore(_)) => {}
            opened => return opened,
        }
        let mut entries = fs::read_dir(directory).map_err(io("list", directory))?;
        if entries.next().is_some() {
            // Another process may have made the store in the meantime.
            return match Self::existing(directory) {
                Err(BlockStoreError::NoStore(path)) => Err(BlockStoreError::NotAStore(path)),
                opened => opened,
            };
        }
        fs::create_dir(directory.join(BLOCKS)).or_else(is_there).map_err(io("make a store in", directory))?;
        Self::existing(directory)
    }

    /// Opens the store in `directory`.
    ///
    /// # Errors
    /// [`BlockStoreError::NoStore`] if there is none, [`BlockStoreError::Io`] if opening fails.
    pub(super) fn existing(directory: &Path) -> Result<Self, BlockStoreError> {
        let path = directory.join(BLOCKS);
        match openat(rustix::fs::CWD, &path, DIRECTORY, Mode::empty()) {
            Ok(blocks) => Ok(Self { path: directory.to_owned(), blocks }),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(BlockStoreError::NoStore(directory.to_owned())),
            Err(error) => Err(io("open", &path)(error.into())),
        }
    }

    /// Returns the keys of all entries, in order.
    ///
    /// # Errors
    /// [`BlockStoreError::Io`] if a directory cannot be read, [`BlockStoreError::TooMany`].
    pub(super) fn keys(&self) -> Result<Vec<StoreKey>, BlockStoreError> {
        let mut keys = Vec::new();
        for folder in (0..=u8::MAX).map(|byte| format!("{byte:02x}")) {
            let Some(of_folder) = self.folder(&folder, false)? else { continue };
            let failed = |error: Errno| io("list", &self.at(&folder, ""))(error.into());
            for entry in Dir::read_from(&of_folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = entry.file_name().to_str().ok().and_then(|name| name.strip_suffix(ENTRY));
                let Some(key) = name.and_then(|name| name.parse::<StoreKey>().ok()) else { continue };
                if !key.to_string().starts_with(&folder) {
                    continue;
                }
                if keys.len() >= MOST {
                    return Err(BlockStoreError::TooMany { path: self.path.clone(), most: MOST });
                }
                keys.push(key);
            }
        }
        keys.sort_unstable();
        Ok(keys)
    }

    /// Reads the entry of `key`.
    pub(super) fn contents(&self, key: &StoreKey) -> Result<Option<JournalContents>, BlockStoreError> {
        let path = self.entry(key);
        let (folder, name) = names(key);
        let damaged = |problem: String| BlockStoreError::Damaged { path: path.clone(), problem };
        let Some(folder) = self.folder(&folder, false)? else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&folder, &name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => return Err(damaged("it is no regular file".to_owned())),
            Err(error) => return Err(io("read", &path)(error.into())),
        };
        if !file.metadata().map_err(io("read", &path))?.is_file() {
            return Err(damaged("it is no regular file".to_owned()));
        }
        match JournalContents::read_file(&path, file, MAX_ENTRY) {
            Ok(contents) => Ok(Some(contents)),
            Err(JournalError::Io { source, .. }) => Err(io("read", &path)(source)),
            Err(error) => Err(damaged(error.to_string())),
        }
    }

    /// Writes the entry of `key`, which then exists whole or not at all.
    pub(super) fn write(&self, key: &StoreKey, text: &[u8]) -> Result<(), BlockStoreError> {
        let (folder, name) = names(key);
        let failed = io("write", &self.entry(key));
        let Some(folder) = self.folder(&folder, true)? else { return Err(failed(io::ErrorKind::NotFound.into())) };
        let Some(drafts) = self.folder(DRAFTS, true)? else { return Err(failed(io::ErrorKind::NotFound.into())) };
        self.sweep(&drafts);
        let (draft, file) = draft(&drafts).map_err(io("write", &self.at(DRAFTS, "")))?;
        let mut file = File::from(file);
        let done = file
            .write_all(text)
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(renameat(&drafts, &draft, &folder, &name)?))
            // The name must survive a crash, as the contents do.
            .and_then(|()| Ok(rustix::fs::fsync(&folder)?));
        done.map_err(|error| {
            // The draft no longer exists if it was renamed.
            let _ = unlinkat(&drafts, &draft, AtFlags::empty());
            failed(error)
        })
    }

    /// Moves the entry of `key` aside, where no reader searches. Returns the new path.
    ///
    /// # Errors
    /// [`BlockStoreError::Io`] if the entry cannot be renamed.
    pub(super) fn put_aside(&self, key: &StoreKey) -> Result<PathBuf, BlockStoreError> {
        let (folder, name) = names(key);
        let to = format!("{key}-{}{ENTRY}", unix_ms());
        let failed = io("put aside", &self.entry(key));
        let (Some(folder), Some(aside)) = (self.folder(&folder, false)?, self.folder(ASIDE, true)?) else {
            return Err(failed(io::ErrorKind::NotFound.into()));
        };
        renameat(&folder, &name, &aside, &to).map_err(|error| failed(error.into()))?;
        Ok(self.at(ASIDE, &to))
    }

    /// Opens the directory `name` of the store. A missing directory is made if `make`.
    fn folder(&self, name: &str, make: bool) -> Result<Option<OwnedFd>, BlockStoreError> {
        let failed = |action, error: Errno| io(action, &self.at(name, ""))(error.into());
        if make {
            match mkdirat(&self.blocks, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failed("make", error)),
            }
        }
        match openat(&self.blocks, name, DIRECTORY, Mode::empty()) {
            Ok(folder) => Ok(Some(folder)),
            Err(Errno::NOENT) if !make => Ok(None),
            Err(error) => Err(failed("open", error)),
        }
    }

    /// Removes abandoned drafts as far as possible. Nothing depends on them.
    fn sweep(&self, drafts: &OwnedFd) {
        let Ok(entries) = Dir::read_from(drafts) else { return };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        for entry in entries.take(MOST).flatten() {
            let name = entry.file_name();
            if !name.to_bytes().ends_with(DRAFT.as_bytes()) {
                continue;
            }
            let Ok(stat) = statat(drafts, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            if is_file && now.saturating_sub(stat.st_mtime) > ABANDONED {
                let _ = unlinkat(drafts, name, AtFlags::empty());
            }
        }
    }

    /// Returns the path of an entry, for messages.
    pub(super) fn entry(&self, key: &StoreKey) -> PathBuf {
        let (folder, name) = names(key);
        self.at(&folder, &name)
    }

    fn at(&self, folder: &str, name: &str) -> PathBuf {
        self.path.join(BLOCKS).join(folder).join(name)
    }
}

/// Flags for opening a directory of the store.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Returns the directory and the file name of the entry of `key`.
pub(super) fn names(key: &StoreKey) -> (String, String) {
    let key = key.to_string();
    (key.chars().take(2).collect(), key + ENTRY)
}

/// Creates a new file in `drafts`, and returns it with its name.
fn draft(drafts: &OwnedFd) -> io::Result<(String, OwnedFd)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let drafts: BorrowedFd<'_> = drafts.as_fd();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Processes on other hosts can have the same process id.
    for _ in 0..100 {
        let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let name = format!("{}-{nanos}-{}{DRAFT}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        match openat(drafts, &name, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => return Ok((name, file)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

fn is_there(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> BlockStoreError + use<> {
    let path = path.to_owned();
    move |source| BlockStoreError::Io { action, path: path.clone(), source }
}

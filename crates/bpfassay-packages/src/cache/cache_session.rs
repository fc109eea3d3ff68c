// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions: each process works in a directory of the cache's `tmp`, which it has locked.
//!
//! The system releases the lock when the process ends, however it ends. A directory with our prefix
//! and a free lock has no owner, and is removed. Process ids fail if containers share a cache.

use std::{
    fs,
    io::{self, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags},
    io::Errno,
};

use super::removal::{open_directory, open_same_mount, remove_at};
use crate::error::{PackagesError, Result};

/// Prefix of the names of our directories in `tmp`.
pub(super) const PREFIX: &str = "bpfassay-";
/// Prefix before the name while a directory has no owner yet.
const BEGUN: &str = ".";
/// The file in each directory that its owner has locked.
const OWNER: &str = "owner";

/// The directory of one open cache in `tmp`. It is removed when the last user drops it.
#[derive(Debug)]
pub(crate) struct CacheSession {
    tmp: OwnedFd,
    path: PathBuf,
    /// Locked to show that the owner runs.
    _owner: fs::File,
}

impl CacheSession {
    /// Creates a directory in `tmp`, which is at `path`, with a name that begins with `prefix`. The
    /// directory gets this name when its owner has locked it.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if the directory or its lock cannot be created or renamed.
    pub(crate) fn begin(tmp: OwnedFd, path: &Path, prefix: &str) -> Result<Self> {
        let made = tempfile::Builder::new().prefix(&format!("{BEGUN}{prefix}")).tempdir_in(path);
        let begun = made.map_err(PackagesError::io("create a directory in", path))?;
        let failed = || PackagesError::io("create", begun.path());
        let owner = own(tmp.as_fd(), begun.path()).map_err(failed())?;
        let name = name_of(begun.path()).map_err(failed())?;
        let name = name.to_string_lossy();
        let name = name.strip_prefix(BEGUN).unwrap_or(&name);
        rustix::fs::renameat(&tmp, name_of(begun.path()).map_err(failed())?, &tmp, name)
            .map_err(|error| failed()(error.into()))?;
        let place = path.join(name);
        // The first name no longer exists: keep `begun` from removing it.
        let _ = begun.keep();
        Ok(Self { tmp, path: place, _owner: owner })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for CacheSession {
    fn drop(&mut self) {
        let removed = name_of(&self.path).and_then(|name| Ok(remove_at(self.tmp.as_fd(), &name)?));
        if let Err(error) = removed {
            tracing::debug!("{} stays until the cache is opened again: {error}", self.path.display());
        }
    }
}

fn name_of(path: &Path) -> io::Result<std::ffi::CString> {
    Ok(std::ffi::CString::new(path.file_name().unwrap_or_default().as_bytes())?)
}

/// Creates and locks the file that shows who owns the directory `path` in `tmp`.
fn own(tmp: BorrowedFd<'_>, path: &Path) -> io::Result<fs::File> {
    let directory = open_directory(tmp, name_of(path)?.as_c_str())?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = fs::File::from(rustix::fs::openat(&directory, OWNER, flags, Mode::from_raw_mode(0o600))?);
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // For people who read the file.
    writeln!(file, "{}", std::process::id())?;
    Ok(file)
}

/// Removes directories without an owner whose names begin with `prefix` from `tmp`, the directory
/// at `path`. Other entries stay. Directories that have no owner yet are removed only if we are
/// `alone`, so that no other process can be making one. Calls `before` with each before it is
/// removed.
///
/// # Errors
/// [`PackagesError::Io`] if `tmp` cannot be listed. An entry that cannot be removed is not an
/// error.
pub(crate) fn sweep(
    tmp: BorrowedFd<'_>,
    path: &Path,
    prefix: &str,
    alone: bool,
    mut before: impl FnMut(&Path),
) -> Result<()> {
    let failed = |error: Errno| PackagesError::io("read", path)(error.into());
    for entry in Dir::read_from(tmp).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let begun = name.to_bytes().strip_prefix(BEGUN.as_bytes()).filter(|_| alone);
        if !begun.unwrap_or(name.to_bytes()).starts_with(prefix.as_bytes()) {
            continue;
        }
        // An entry that cannot be read or removed does no harm.
        let removed = match abandoned(tmp, name) {
            Ok(None) => Ok(()),
            Ok(Some(_held)) => {
                before(&path.join(name.to_string_lossy().as_ref()));
                remove_at(tmp, name)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::debug!("cannot remove {}: {error}", path.join(name.to_string_lossy().as_ref()).display());
        }
    }
    Ok(())
}

/// Opens the directory `name` if it belongs to this user and its owner has ended, as the returned
/// lock proves.
fn abandoned(tmp: BorrowedFd<'_>, name: &std::ffi::CStr) -> Result<Option<OwnedFd>, Errno> {
    let stat = rustix::fs::statat(tmp, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let ours = stat.st_uid == rustix::process::geteuid().as_raw();
    if !ours || FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Ok(None);
    }
    let Some(directory) = open_same_mount(tmp, name)? else { return Ok(None) };
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let owner = match rustix::fs::openat(&directory, OWNER, flags, Mode::empty()) {
        Ok(owner) => owner,
        // The process that made or removed it died between two steps.
        Err(Errno::NOENT) => return Ok(Some(directory)),
        Err(error) => return Err(error),
    };
    match rustix::fs::flock(&owner, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(owner)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error),
    }
}

/// An empty directory in the cache's file system, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    // Dropped before `_session`, whose directory contains it.
    directory: tempfile::TempDir,
    _session: Option<Arc<CacheSession>>,
}

impl Scratch {
    /// Creates a directory, private to this user, in the system's directory for temporary files.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if it cannot be made.
    pub(super) fn elsewhere() -> Result<Self> {
        let closed = fs::Permissions::from_mode(0o700);
        let made = tempfile::Builder::new().prefix(PREFIX).permissions(closed).tempdir();
        let directory = made.map_err(PackagesError::io("create a directory in", std::env::temp_dir()))?;
        Ok(Self { directory, _session: None })
    }

    /// Creates a directory inside the directory of `session`.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if the directory cannot be created.
    pub(super) fn in_session(session: Arc<CacheSession>) -> Result<Self> {
        let made = tempfile::Builder::new().prefix("scratch-").tempdir_in(session.path());
        let directory = made.map_err(PackagesError::io("create a directory in", session.path()))?;
        Ok(Self { directory, _session: Some(session) })
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Renames the directory to `path`, and keeps it.
    ///
    /// # Errors
    /// The errors of rename(2), such as when `path` exists and is not empty.
    pub(super) fn persist(self, path: &Path) -> io::Result<()> {
        fs::rename(self.directory.path(), path)?;
        // The old name no longer exists: keep `directory` from removing it.
        let _ = self.directory.keep();
        Ok(())
    }
}

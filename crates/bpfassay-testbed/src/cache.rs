// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache: everything that was downloaded or built, by content.
//!
//! ```text
//! ROOT/objects/ab/cdef…        files, named by their SHA-256, read-only; beside each a `.stamp`
//! ROOT/trees/KIND/KEY/         directories made from inputs whose digest is KEY, with a listing of their files
//! ROOT/records/KIND/KEY.json   small facts found out for inputs whose digest is KEY
//! ROOT/apt/…                   private package indexes
//! ROOT/locks/NAME              what concurrent processes wait on
//! ROOT/tmp/bpfassay-…/         what a process is making; removed when it is gone
//! ROOT/tmp/partial/…           downloads that were broken off, by the SHA-256 that they are to have
//! ROOT/CACHEDIR.TAG, ROOT/bpfassay-cache   without which no directory counts as a cache, but a missing or empty one
//! ```
//!
//! Files and directories are made in `tmp`, checked, and renamed, so that they appear complete.
//! Using a file checks size and times against the stamp taken when its content was last hashed, and
//! hashes again only where they differ: opening a prepared testbed reads no gigabytes.
//! [`Cache::check`] hashes everything. A damaged file or directory is reported, removed, and
//! treated as absent, so that it is made again when it is needed.

#![allow(
    clippy::disallowed_methods,
    reason = "the cache is a directory of the user's own, and names in it are digests and fixed words"
)]

mod digest;
mod lock;
mod object;
mod partial;
mod place;
mod record;
mod removal;
mod session;
mod stamp;
mod tree;
mod usage;

use std::{
    env, fs, io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use etcetera::BaseStrategy;

pub use self::{
    digest::{Digest, Hasher, NotADigest},
    lock::Lock,
    object::{Object, ObjectWriter},
    place::MARKER,
    session::Scratch,
    tree::{Tree, TreeFile},
    usage::{Item, ItemKind},
};
pub(crate) use self::{
    session::{Session, sweep},
    tree::digest_of_directory,
};
use crate::{Error, Result};

/// The lock for making directories in `tmp`, and for removing those without owner.
const SESSIONS: &str = "tmp";

/// An open cache directory, shared with other processes.
#[derive(Debug)]
pub struct Cache {
    root: PathBuf,
    /// The same, for removing entries below it.
    directory: OwnedFd,
    /// Where things are made, from the first on.
    session: Mutex<Option<Arc<Session>>>,
    /// A shared lock: whoever removes what is not used any more waits until it is free, and so do
    /// versions from before there were markers that empty `tmp`.
    in_use: Lock,
    access: CacheAccess,
}

/// What may be done with a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheAccess {
    /// Everything.
    Whole,
    /// What is there is used, and nothing made: it belongs to root, or its file system is
    /// read-only.
    ReadOnly,
}

/// What [`Cache::check`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Files whose content was hashed, those in trees included.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was damaged and has been removed: it is made or downloaded again when it is needed.
    pub removed: Vec<PathBuf>,
}

impl Cache {
    /// The cache directory: `given`, or `$XDG_CACHE_HOME/bpfassay`, or `~/.cache/bpfassay`. Nothing
    /// is created.
    ///
    /// # Errors
    /// [`Error::NoCacheDirectory`]; [`Error::Io`] where a relative `given` cannot be made absolute.
    pub fn locate(given: Option<&Path>) -> Result<PathBuf> {
        if let Some(path) = given {
            return std::path::absolute(path).map_err(Error::io("find", path));
        }
        let base = etcetera::base_strategy::Xdg::new().map_err(|_| Error::NoCacheDirectory)?;
        if base.home_dir().as_os_str().is_empty() && env::var_os("XDG_CACHE_HOME").is_none() {
            return Err(Error::NoCacheDirectory);
        }
        Ok(base.cache_dir().join("bpfassay"))
    }

    /// Opens the cache in `root`, and clears away what processes that died left in it. A missing or
    /// empty directory is made a cache; any other that is none is refused. One that this user may
    /// only read is used as it is.
    ///
    /// # Errors
    /// [`Error::NotACache`] for a directory that is neither a cache nor empty, or that others may change; [`Error::Io`] and [`Error::DiskFull`]
    /// where it cannot be read or made.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        let (directory, access) = place::open(&root)?;
        let path = root.join("locks/in-use");
        let in_use = match access {
            CacheAccess::Whole => lock::take(&path, lock::Mode::Shared)?,
            CacheAccess::ReadOnly => lock::await_maker(&path),
        };
        let cache = Self { root, directory, session: Mutex::default(), in_use, access };
        if access == CacheAccess::Whole {
            let _alone = cache.lock(SESSIONS)?;
            let (tmp, path) = cache.tmp()?;
            sweep(tmp.as_fd(), &path, session::PREFIX, true, |dead| {
                for scratch in entries(dead, |kind| kind.is_dir()).unwrap_or_default() {
                    cache.keep_abandoned(&scratch);
                }
            })?;
            cache.expire_partial();
        }
        Ok(cache)
    }

    /// Our directory in `tmp`.
    fn session(&self) -> Result<Arc<Session>> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = &*session {
            return Ok(Arc::clone(session));
        }
        self.require_access("what is to be made")?;
        let _alone = self.lock(SESSIONS)?;
        let (tmp, path) = self.tmp()?;
        Ok(Arc::clone(session.insert(Arc::new(Session::begin(tmp, &path, session::PREFIX)?))))
    }

    fn tmp(&self) -> Result<(OwnedFd, PathBuf)> {
        let path = self.root.join("tmp");
        let tmp = removal::open_directory(self.directory.as_fd(), "tmp");
        Ok((tmp.map_err(|error| Error::io("open", &path)(error.into()))?, path))
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Waits until no other thread or process holds the lock `name`, and takes it. Where another
    /// process holds it, that is reported every 30 s. In a cache that cannot be written to, this
    /// waits until the lock is free.
    ///
    /// # Errors
    /// [`Error::Io`] where the lock's file cannot be made or locked.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        let path = self.root.join("locks").join(name);
        match self.access {
            CacheAccess::Whole => lock::take(&path, lock::Mode::Exclusive),
            CacheAccess::ReadOnly => Ok(lock::await_maker(&path)),
        }
    }

    /// Whether things can be made in it.
    #[must_use]
    pub fn access(&self) -> CacheAccess {
        self.access
    }

    /// Refuses to make `what` in a cache that cannot be written to.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] where the cache may only be read.
    pub fn require_access(&self, what: &str) -> Result<()> {
        match self.access {
            CacheAccess::Whole => Ok(()),
            CacheAccess::ReadOnly => Err(Error::ReadOnly { what: what.to_owned(), path: self.root.clone() }),
        }
    }

    /// An empty directory in the cache's file system, removed when dropped; in the system's place
    /// for temporary files, where the cache cannot be written to.
    ///
    /// # Errors
    /// [`Error::Io`] where the directory cannot be made.
    pub fn scratch(&self) -> Result<Scratch> {
        match self.access {
            CacheAccess::Whole => Scratch::in_session(self.session()?),
            CacheAccess::ReadOnly => Scratch::elsewhere(),
        }
    }

    /// Bytes free for this user in the cache's file system.
    ///
    /// # Errors
    /// [`Error::Io`] where the system does not report it.
    pub fn free_space(&self) -> Result<u64> {
        free_space(&self.root)
    }

    /// Makes sure that `needed` bytes are free for `what`, before work begins that would fail
    /// without them.
    ///
    /// # Errors
    /// [`Error::DiskFull`] where fewer are free; [`Error::Io`] where the system does not report it.
    pub fn require_space(&self, what: &str, needed: u64) -> Result<()> {
        let free = self.free_space()?;
        if free < needed {
            return Err(Error::DiskFull { what: what.to_owned(), path: self.root.clone(), needed, free });
        }
        Ok(())
    }

    /// Turns the failure of writing `what` into [`Error::DiskFull`] where that is what it is.
    /// `needed` is how many bytes it takes, at least.
    pub fn write_error(&self, what: &str, needed: u64, path: &Path, source: io::Error) -> Error {
        if is_full(&source) {
            let free = self.free_space().unwrap_or(0);
            return Error::DiskFull { what: what.to_owned(), path: self.root.clone(), needed, free };
        }
        Error::Io { action: "write", path: path.to_owned(), source }
    }

    /// Hashes every file in the cache, regardless of its stamp, and removes what is damaged.
    ///
    /// # Errors
    /// [`Error::Io`] where the cache cannot be read; [`Error::Damaged`] for something damaged that cannot be removed.
    pub fn check(&self) -> Result<Checked> {
        let mut checked = Checked::default();
        self.check_objects(&mut checked)?;
        self.check_trees(&mut checked)?;
        Ok(checked)
    }

    /// Whether `error` means that this user may not read what another user made at `path`, in a
    /// cache that is only read.
    fn may_not_read(&self, path: &Path, error: &io::Error) -> bool {
        let closed = self.access == CacheAccess::ReadOnly && error.kind() == io::ErrorKind::PermissionDenied;
        if closed {
            tracing::warn!(
                "{} in the cache is closed to this user; its owner can open it up with chmod",
                path.display()
            );
        }
        closed
    }

    /// Removes something damaged, and reports it.
    fn discard(&self, path: &Path, why: &str) -> Result<()> {
        if self.access == CacheAccess::ReadOnly {
            tracing::warn!(
                "{} in the cache is damaged ({why}), and this user cannot replace it: `bpfassay testbed fetch --verify`, run by its \
                 owner, does",
                path.display()
            );
            return Ok(());
        }
        tracing::warn!("{} in the cache is damaged ({why}); removed, to be made or downloaded again", path.display());
        self.remove(path).map_err(|error| match error {
            Error::Io { path, source, .. } => Error::Damaged { path, source },
            other => other,
        })
    }

    /// Removes a file or a directory of the cache with everything in it; absent is fine.
    ///
    /// # Errors
    /// [`Error::Io`] where the system refuses, or where the path leads out of the cache by `..` or through a link.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        removal::remove_below(self.directory.as_fd(), below).map_err(Error::io("remove", path))
    }
}

/// Whether the disk, or the user's share of it, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Bytes free for this user in the file system of `path`.
///
/// # Errors
/// [`Error::Io`] where the file system cannot be asked, such as for a path that does not exist.
pub(crate) fn free_space(path: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(path).map_err(|error| Error::io("find the free space of", path)(error.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The entries of `directory` that are of a kind, sorted. A link is none of a directory: it leads
/// out of the cache.
///
/// # Errors
/// [`Error::Io`] where the directory cannot be read.
fn entries(directory: &Path, is_wanted: impl Fn(fs::FileType) -> bool) -> Result<Vec<PathBuf>> {
    let read = || {
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if is_wanted(entry.file_type()?) {
                paths.push(entry.path());
            }
        }
        paths.sort();
        Ok(paths)
    };
    read().map_err(Error::io("read", directory))
}

fn create_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) => fs::create_dir_all(parent).map_err(Error::io("create", parent)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;

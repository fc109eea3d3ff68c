// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache keeps everything that was downloaded or built, by content.
//!
//! ```text
//! ROOT/objects/ab/cdef…        files, named by their SHA-256, read-only; each has a `.stamp`
//! ROOT/trees/KIND/KEY/         directories made from inputs with the digest KEY, with a listing
//! ROOT/records/KIND/KEY.json   small facts about inputs with the digest KEY
//! ROOT/apt/…                   private package indexes
//! ROOT/locks/NAME              locks between concurrent processes
//! ROOT/tmp/bpfassay-…/         what a process is making; removed when the process is gone
//! ROOT/tmp/partial/…           broken-off downloads, by the SHA-256 of the complete file
//! ROOT/CACHEDIR.TAG, ROOT/bpfassay-cache   mark the directory as a cache
//! ```
//!
//! Files and directories are made in `tmp`, checked, and renamed, so that they appear complete. A
//! file's stamp has the size and times from when its content was last hashed. A file is hashed
//! again only when they differ: opening a prepared testbed reads no gigabytes. [`Cache::check`]
//! hashes everything. A damaged file or directory is reported, removed, and treated as absent, so
//! that it is created again when it is needed.

#![allow(
    clippy::disallowed_methods,
    reason = "the cache is a directory of the user's own, and names in it are digests and fixed words"
)]

mod build_record;
mod cache_lock;
mod cache_session;
mod cached_object;
mod cached_tree;
mod file_digest;
mod partial;
mod place;
mod removal;
mod stamp;
mod usage;

use std::{
    env, fs, io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use etcetera::BaseStrategy;

pub(crate) use self::cache_session::{CacheSession, sweep};
pub use self::{
    cache_lock::NameLock,
    cache_session::Scratch,
    cached_object::{CachedFile, ObjectWriter},
    cached_tree::{Tree, TreeFile, digest_of_directory},
    place::MARKER,
    usage::{Item, ItemKind},
};
use crate::error::{PackagesError, Result};

/// The lock for making directories in `tmp`, and for removing those without an owner.
const SESSIONS: &str = "tmp";

/// An open cache directory, shared with other processes.
#[derive(Debug)]
pub struct Cache {
    root: PathBuf,
    /// The open directory `root`, for removing entries below it.
    directory: OwnedFd,
    /// Our directory in `tmp`, made at the first use.
    session: Mutex<Option<Arc<CacheSession>>>,
    /// A shared lock. Pruning is refused while another process holds it. Versions that know no
    /// markers wait for it before they empty `tmp`.
    in_use: NameLock,
    access: CacheAccess,
}

/// How a cache can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheAccess {
    /// It can be read and written to.
    Whole,
    /// It can only be read, because it belongs to root or its file system is read-only.
    ReadOnly,
}

/// The result of [`Cache::check`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheCheck {
    /// How many files were hashed, including those in trees.
    pub files: u64,
    /// The total size of these files in bytes.
    pub bytes: u64,
    /// Damaged paths that were removed. They are made or downloaded again when needed.
    pub removed: Vec<PathBuf>,
}

impl Cache {
    /// Returns the path of the cache: `given`, `$XDG_CACHE_HOME/bpfassay` or `~/.cache/bpfassay`.
    ///
    /// # Errors
    /// [`PackagesError::NoCacheDirectory`]. [`PackagesError::Io`] if a relative `given` cannot be
    /// made absolute.
    pub fn locate(given: Option<&Path>) -> Result<PathBuf> {
        if let Some(path) = given {
            return std::path::absolute(path).map_err(PackagesError::io("find", path));
        }
        let base = etcetera::base_strategy::Xdg::new().map_err(|_| PackagesError::NoCacheDirectory)?;
        if base.home_dir().as_os_str().is_empty() && env::var_os("XDG_CACHE_HOME").is_none() {
            return Err(PackagesError::NoCacheDirectory);
        }
        Ok(base.cache_dir().join("bpfassay"))
    }

    /// Opens the cache in `root`, and removes what dead processes left in it. Makes a cache of a
    /// missing or empty directory. A cache that this user can only read is used as it is.
    ///
    /// # Errors
    /// - [`PackagesError::NotACache`]: it is neither a cache nor empty, or other users can change
    ///   it.
    /// - [`PackagesError::Io`], [`PackagesError::DiskFull`]: the cache cannot be read or made.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        let (directory, access) = place::open(&root)?;
        let path = root.join("locks/in-use");
        let in_use = match access {
            CacheAccess::Whole => cache_lock::take(&path, cache_lock::Mode::Shared)?,
            CacheAccess::ReadOnly => cache_lock::await_maker(&path),
        };
        let cache = Self { root, directory, session: Mutex::default(), in_use, access };
        if access == CacheAccess::Whole {
            let _alone = cache.lock(SESSIONS)?;
            let (tmp, path) = cache.tmp()?;
            sweep(tmp.as_fd(), &path, cache_session::PREFIX, true, |dead| {
                for scratch in entries(dead, |kind| kind.is_dir()).unwrap_or_default() {
                    cache.keep_abandoned(&scratch);
                }
            })?;
            cache.expire_partial();
        }
        Ok(cache)
    }

    /// Returns our directory in `tmp`; makes it at the first call.
    fn session(&self) -> Result<Arc<CacheSession>> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = &*session {
            return Ok(Arc::clone(session));
        }
        self.require_access("what is to be made")?;
        let _alone = self.lock(SESSIONS)?;
        let (tmp, path) = self.tmp()?;
        Ok(Arc::clone(session.insert(Arc::new(CacheSession::begin(tmp, &path, cache_session::PREFIX)?))))
    }

    fn tmp(&self) -> Result<(OwnedFd, PathBuf)> {
        let path = self.root.join("tmp");
        let tmp = removal::open_directory(self.directory.as_fd(), "tmp");
        Ok((tmp.map_err(|error| PackagesError::io("open", &path)(error.into()))?, path))
    }

    /// Returns the path of the cache.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Waits until no other thread or process holds the lock `name`, and takes it. Reports every 30
    /// s which process holds it. In a read-only cache, this only waits until the lock is free.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if the lock's file cannot be created or locked.
    pub fn lock(&self, name: &str) -> Result<NameLock> {
        let path = self.root.join("locks").join(name);
        match self.access {
            CacheAccess::Whole => cache_lock::take(&path, cache_lock::Mode::Exclusive),
            CacheAccess::ReadOnly => Ok(cache_lock::await_maker(&path)),
        }
    }

    /// Returns whether the cache can be written to.
    #[must_use]
    pub fn access(&self) -> CacheAccess {
        self.access
    }

    /// Refuses to make `what` in a read-only cache.
    ///
    /// # Errors
    /// [`PackagesError::ReadOnly`] if the cache can only be read.
    pub fn require_access(&self, what: &str) -> Result<()> {
        match self.access {
            CacheAccess::Whole => Ok(()),
            CacheAccess::ReadOnly => Err(PackagesError::ReadOnly { what: what.to_owned(), path: self.root.clone() }),
        }
    }

    /// Creates an empty directory in the cache's file system, which is removed when dropped. For a
    /// read-only cache, it is in the system's directory for temporary files.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if the directory cannot be created.
    pub fn scratch(&self) -> Result<Scratch> {
        match self.access {
            CacheAccess::Whole => Scratch::in_session(self.session()?),
            CacheAccess::ReadOnly => Scratch::elsewhere(),
        }
    }

    /// Returns how many bytes this user can still write to the cache's file system.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if the system does not report it.
    pub fn free_space(&self) -> Result<u64> {
        free_space(&self.root)
    }

    /// Checks that `needed` bytes are free for `what`, before work that would fail without them.
    ///
    /// # Errors
    /// [`PackagesError::DiskFull`] if fewer are free. [`PackagesError::Io`] if the system does not
    /// report it.
    pub fn require_space(&self, what: &str, needed: u64) -> Result<()> {
        let free = self.free_space()?;
        if free < needed {
            return Err(PackagesError::DiskFull { what: what.to_owned(), path: self.root.clone(), needed, free });
        }
        Ok(())
    }

    /// Converts an error of writing `what`: to [`PackagesError::DiskFull`] if the disk is full.
    /// `needed` is the minimum number of bytes that `what` needs.
    pub fn write_error(&self, what: &str, needed: u64, path: &Path, source: io::Error) -> PackagesError {
        if is_full(&source) {
            let free = self.free_space().unwrap_or(0);
            return PackagesError::DiskFull { what: what.to_owned(), path: self.root.clone(), needed, free };
        }
        PackagesError::Io { action: "write", path: path.to_owned(), source }
    }

    /// Hashes every file in the cache, whatever its stamp says, and removes damaged ones.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if the cache cannot be read, or [`PackagesError::Damaged`] if a
    /// damaged file cannot be removed.
    pub fn check(&self) -> Result<CacheCheck> {
        let mut checked = CacheCheck::default();
        self.check_objects(&mut checked)?;
        self.check_trees(&mut checked)?;
        Ok(checked)
    }

    /// Whether `error` denies this user a file of another user at `path`, in a read-only cache.
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

    /// Reports something damaged, and removes it if the cache can be written to.
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
            PackagesError::Io { path, source, .. } => PackagesError::Damaged { path, source },
            other => other,
        })
    }

    /// Removes a file, or a directory with everything in it. A missing file is not an error.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if the system refuses, or if `..` or a symbolic link in the path
    /// leaves the cache.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        removal::remove_below(self.directory.as_fd(), below).map_err(PackagesError::io("remove", path))
    }
}

/// Whether the disk, or the user's quota, is full.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns how many bytes this user can still write to the file system of `path`.
///
/// # Errors
/// [`PackagesError::Io`] if the system does not report it, for example because `path` does not
/// exist.
pub fn free_space(path: &Path) -> Result<u64> {
    let stat =
        rustix::fs::statvfs(path).map_err(|error| PackagesError::io("find the free space of", path)(error.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Lists the entries of `directory` of one kind, sorted. Symbolic links do not count as
/// directories, because they lead out of the cache.
///
/// # Errors
/// [`PackagesError::Io`] if the directory cannot be read.
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
    read().map_err(PackagesError::io("read", directory))
}

fn create_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) => fs::create_dir_all(parent).map_err(PackagesError::io("create", parent)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;

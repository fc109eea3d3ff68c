//! The cache: everything that was downloaded or built, by content.
//!
//! ```text
//! ROOT/objects/ab/cdef…        files, named by their SHA-256, read-only; beside each a `.stamp`
//! ROOT/trees/KIND/KEY/         directories made from inputs whose digest is KEY, with a listing of their files
//! ROOT/records/KIND/KEY.json   small facts found out for inputs whose digest is KEY
//! ROOT/apt/…                   private package indexes
//! ROOT/locks/NAME              what concurrent processes wait on
//! ROOT/tmp/                    what is being made; emptied when nobody uses the cache
//! ```
//!
//! Files and directories are made in `tmp`, checked, and renamed, so that nobody sees half of one. Using a file checks
//! size and times against the stamp taken when its content was last hashed, and hashes again only where they differ:
//! opening a prepared testbed reads no gigabytes. [`Cache::check`] hashes everything. A damaged file or directory is
//! reported, removed, and treated as absent, so whoever can make it makes it again.

mod digest;
mod object;
mod record;
mod stamp;
mod tree;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use etcetera::BaseStrategy;

pub use self::{
    digest::{Digest, Hasher, NotADigest},
    object::{Object, ObjectWriter},
    tree::{Tree, TreeFile},
};
use crate::{Error, Result};

/// An open cache directory, shared with other processes.
#[derive(Debug)]
pub struct Cache {
    root: PathBuf,
    /// A shared lock: while anybody holds it, nobody empties `tmp`.
    _in_use: fs::File,
}

/// An exclusive lock on one name in the cache, held until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: fs::File,
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
    /// Where the cache lies: `given`, or `$XDG_CACHE_HOME/bpfassay`, or `~/.cache/bpfassay`. Nothing is created.
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

    /// Opens the cache in `root`, creates it where it is missing, and clears away what processes that died left in it.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::DiskFull`].
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        for part in ["objects", "trees", "records", "apt", "locks", "tmp"] {
            let path = root.join(part);
            fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
        }
        let tag = root.join("CACHEDIR.TAG");
        if !tag.exists() {
            fs::write(&tag, "Signature: 8a477f597d28d172789f06886806bc55\n# Made by bpfassay.\n")
                .map_err(Error::io("write", &tag))?;
        }
        let path = root.join("locks/in-use");
        let in_use = open_lock(&path)?;
        if in_use.try_lock().is_ok() {
            let tmp = root.join("tmp");
            for entry in fs::read_dir(&tmp).map_err(Error::io("read", &tmp))? {
                let entry = entry.map_err(Error::io("read", &tmp))?;
                remove(&entry.path())?;
            }
        }
        // Turning an exclusive lock into a shared one may let another process in between; `tmp` holds nothing of ours yet.
        in_use.lock_shared().map_err(Error::io("lock", &path))?;
        Ok(Self { root, _in_use: in_use })
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Waits until no other process holds the lock `name`, and holds it. Says so where it has to wait.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn lock(&self, name: &str) -> Result<Lock> {
        let path = self.root.join("locks").join(name);
        let file = open_lock(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                tracing::info!("another bpfassay is making {name}; waiting for it");
                file.lock().map_err(Error::io("lock", &path))?;
            }
            Err(fs::TryLockError::Error(source)) => return Err(Error::Io { action: "lock", path, source }),
        }
        Ok(Lock { _file: file })
    }

    /// An empty directory in the cache's file system, removed when dropped.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn scratch(&self) -> Result<tempfile::TempDir> {
        let tmp = self.root.join("tmp");
        tempfile::Builder::new().prefix("scratch-").tempdir_in(&tmp).map_err(Error::io("create a directory in", tmp))
    }

    /// Bytes free for us where the cache lies.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn free_space(&self) -> Result<u64> {
        free_space(&self.root)
    }

    /// Makes sure that `needed` bytes are free for `what`, before work begins that would fail without them.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub fn require_space(&self, what: &str, needed: u64) -> Result<()> {
        let free = self.free_space()?;
        if free < needed {
            return Err(Error::DiskFull { what: what.to_owned(), path: self.root.clone(), needed, free });
        }
        Ok(())
    }

    /// Turns the failure of writing `what` into [`Error::DiskFull`] where that is what it is. `needed` is how many bytes
    /// it takes, at least.
    pub fn write_error(&self, what: &str, needed: u64, path: &Path, source: io::Error) -> Error {
        if is_full(&source) {
            let free = self.free_space().unwrap_or(0);
            return Error::DiskFull { what: what.to_owned(), path: self.root.clone(), needed, free };
        }
        Error::Io { action: "write", path: path.to_owned(), source }
    }

    /// Hashes every file in the cache, whatever its stamp says, and removes what is damaged.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] for something damaged that cannot be removed.
    pub fn check(&self) -> Result<Checked> {
        let mut checked = Checked::default();
        self.check_objects(&mut checked)?;
        self.check_trees(&mut checked)?;
        Ok(checked)
    }

    /// Removes something damaged, and says so.
    fn discard(&self, path: &Path, why: &str) -> Result<()> {
        tracing::warn!("{} in the cache is damaged ({why}); removed, to be made or downloaded again", path.display());
        remove(path).map_err(|error| match error {
            Error::Io { path, source, .. } => Error::Damaged { path, source },
            other => other,
        })
    }
}

/// Whether the disk, or the user's share of it, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Bytes free for this user in the file system of `path`.
pub(crate) fn free_space(path: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(path).map_err(|error| Error::io("find the free space of", path)(error.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Removes a file or a directory with everything in it; absent is fine.
fn remove(path: &Path) -> Result<()> {
    let outcome = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match outcome {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(Error::Io { action: "remove", path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

fn open_lock(path: &Path) -> Result<fs::File> {
    fs::File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .map_err(Error::io("open the lock", path))
}

fn create_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) => fs::create_dir_all(parent).map_err(Error::io("create", parent)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Broken-off downloads in `tmp/partial`, for continuing them. Each is named by its final SHA-256.
//!
//! Nothing in this directory is trusted: the caller compares the hash of a complete file. Files
//! keep the server's modification time, by which a server knows whether its file is still the same.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{Cache, CacheAccess, entries};
use crate::{
    digest::Digest,
    error::{PackagesError, Result},
};

/// The directory in `tmp`.
const DIRECTORY: &str = "partial";
/// The lock for moving files into and out of this directory.
const LOCK: &str = "partial";
/// How long a file is kept without being continued.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

impl Cache {
    fn partial(&self) -> PathBuf {
        self.root.join("tmp").join(DIRECTORY)
    }

    /// Moves the existing part of the file `digest`, of `size` bytes, to `path`, which must not
    /// exist. Returns the length of the part in bytes.
    ///
    /// # Errors
    /// [`PackagesError::Io`] or [`PackagesError::DiskFull`] if it cannot be moved.
    pub(crate) fn take_partial(&self, digest: &Digest, size: u64, path: &Path) -> Result<u64> {
        let known = self.partial().join(digest.to_string());
        if self.access == CacheAccess::ReadOnly || !known.exists() {
            return Ok(0);
        }
        let _lock = self.lock(LOCK)?;
        match fs::symlink_metadata(&known) {
            Ok(metadata) if metadata.is_file() && (1..size).contains(&metadata.len()) => {
                self.move_partial(&known, path, metadata.len())?;
                Ok(metadata.len())
            }
            Ok(_) => self.remove(&known).map(|()| 0),
            Err(_) => Ok(0),
        }
    }

    /// Keeps the file `path`, a part of the `size` bytes with `digest`, for the next download. A
    /// file that cannot be such a part stays in its place.
    ///
    /// # Errors
    /// [`PackagesError::Io`] or [`PackagesError::DiskFull`] if it cannot be moved.
    pub(crate) fn keep_partial(&self, digest: &Digest, size: u64, path: &Path) -> Result<()> {
        let is_part = |metadata: &fs::Metadata| {
            metadata.is_file() && metadata.nlink() == 1 && (1..size).contains(&metadata.len())
        };
        let Some(metadata) = fs::symlink_metadata(path).ok().filter(is_part) else { return Ok(()) };
        if self.access == CacheAccess::ReadOnly {
            return Ok(());
        }
        let _lock = self.lock(LOCK)?;
        let directory = self.partial();
        fs::create_dir_all(&directory).map_err(PackagesError::io("create", &directory))?;
        let known = directory.join(digest.to_string());
        self.remove(&known)?;
        self.move_partial(path, &known, metadata.len())
    }

    /// Keeps the partial downloads in `directory` of a dead process: files named by a digest.
    pub(crate) fn keep_abandoned(&self, directory: &Path) {
        let Ok(files) = entries(directory, |kind| kind.is_file()) else { return };
        for path in files {
            let Some(digest) = path.file_name().and_then(|name| name.to_str()?.parse::<Digest>().ok()) else {
                continue;
            };
            // The size is checked when somebody asks for the file.
            if let Err(error) = self.keep_partial(&digest, u64::MAX, &path) {
                tracing::debug!("cannot keep {}: {error}", path.display());
            }
        }
    }

    /// Removes files that nobody continued for [`KEPT`].
    pub(super) fn expire_partial(&self) {
        let changed = |path: &Path| {
            let seconds = u64::try_from(fs::symlink_metadata(path).ok()?.ctime()).ok()?;
            UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
        };
        let is_old = |path: &Path| {
            changed(path).is_some_and(|then| SystemTime::now().duration_since(then).is_ok_and(|age| age > KEPT))
        };
        for path in entries(&self.partial(), |_| true).unwrap_or_default().iter().filter(|path| is_old(path)) {
            if let Err(error) = self.remove(path) {
                tracing::debug!("cannot remove {}: {error}", path.display());
            }
        }
    }

    /// Moves the file `from` of `size` bytes to `to`. Copies it if it is in another file system or
    /// belongs to another user, so that `to` belongs to this user.
    fn move_partial(&self, from: &Path, to: &Path, size: u64) -> Result<()> {
        let copy = || {
            let source = bpfassay_input::open_unlinked(from)?;
            let modified = source.metadata()?.modified()?;
            let mut target = fs::File::create_new(to)?;
            // The limit stops reading a file that keeps growing.
            io::copy(&mut io::Read::take(&source, size), &mut target)?;
            target.set_modified(modified)
        };
        let is_ours =
            fs::symlink_metadata(from).is_ok_and(|metadata| metadata.uid() == rustix::process::geteuid().as_raw());
        if is_ours && fs::rename(from, to).is_ok() {
            return Ok(());
        }
        copy().map_err(|error| self.write_error("a download that was broken off", size, to, error))?;
        fs::remove_file(from).map_err(PackagesError::io("remove", from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::left_in_tmp;

    #[test]
    fn a_part_is_kept_once_with_its_time_and_taken_once() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        let (digest, then) = (Digest::of(b"whole"), UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        assert_eq!(cache.take_partial(&digest, 5, &to).unwrap(), 0);
        for (content, kept) in [("", 0), ("whole", 0), ("wh", 2)] {
            fs::write(&from, content).unwrap();
            fs::File::open(&from).unwrap().set_modified(then).unwrap();
            cache.keep_partial(&digest, 5, &from).unwrap();
            assert_eq!(from.exists(), kept == 0);
            assert_eq!(cache.take_partial(&digest, 5, &to).unwrap(), kept, "{content}");
        }
        assert_eq!(fs::read(&to).unwrap(), b"wh");
        assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), then);
        // A file as long as the whole is not a part.
        fs::rename(&to, &from).unwrap();
        cache.keep_partial(&digest, 5, &from).unwrap();
        assert_eq!(cache.take_partial(&digest, 2, &to).unwrap(), 0);
        assert_eq!(cache.take_partial(&digest, 5, &to).unwrap(), 0);
        assert!(entries(&cache.partial(), |_| true).unwrap().is_empty());
    }

    #[test]
    fn what_a_process_that_died_had_downloaded_is_kept_and_nothing_else_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        drop(Cache::open(&root).unwrap());
        let digest = Digest::of(b"whole");
        let place = root.join("tmp/bpfassay-gone/scratch-1");
        fs::create_dir_all(&place).unwrap();
        fs::write(root.join("tmp/bpfassay-gone/owner"), "").unwrap();
        fs::write(place.join(digest.to_string()), "who").unwrap();
        fs::write(place.join("other"), "other").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", place.join(Digest::of(b"link").to_string())).unwrap();
        let cache = Cache::open(&root).unwrap();
        assert_eq!(left_in_tmp(&root), [cache.partial()]);
        assert_eq!(fs::read_dir(cache.partial()).unwrap().count(), 1);
        assert_eq!(cache.take_partial(&digest, 5, &directory.path().join("to")).unwrap(), 3);
    }
}

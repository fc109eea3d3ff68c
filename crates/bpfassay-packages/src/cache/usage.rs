// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists what uses space in a cache and when it was last used, and removes what was not used for a
//! long time.
//!
//! The time of last use is the modification time of a file that is read at each use: an object's
//! stamp, or a tree's listing. Uses renew it at most once an hour. Earlier versions did not renew
//! it: their files count as last used when they were made.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use super::{Cache, CacheAccess, cached_object::stamp_path, cached_tree::LISTING, entries};
use crate::error::{PackagesError, Result};

/// A use this soon after another one is not recorded.
const RESOLUTION: Duration = Duration::from_secs(3600);

/// Kinds of items in a cache.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ItemKind {
    /// A Debian package file. It is needed again only if the unpacked files no longer exist.
    Package,
    /// An initramfs segment of guests.
    Segment,
    /// Another file, such as a kernel image or a guest's program.
    File,
    /// A directory of the named kind, such as `kernel` or `toolchain`.
    Tree(String),
    /// The package index of a suite.
    Index,
}

/// Something in a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The kind of the item.
    pub kind: ItemKind,
    /// The path of its file or directory.
    pub path: PathBuf,
    /// The total size of its files in bytes.
    pub bytes: u64,
    /// When it was last used. For an index, when it was fetched.
    pub used: SystemTime,
}

impl Cache {
    /// Lists the objects, trees and package indexes in the cache.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if the cache cannot be read.
    pub fn items(&self) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        for directory in directories(&self.root.join("objects"))? {
            for path in files(&directory)?.into_iter().filter(|path| path.extension().is_none()) {
                let Some(metadata) = metadata(&path)? else { continue };
                let used = modified(&stamp_path(&path))?.map_or_else(|| time_of(&path, &metadata), Ok)?;
                items.push(Item { kind: kind_of(&path)?, bytes: metadata.len(), used, path });
            }
        }
        for of_kind in directories(&self.root.join("trees"))? {
            let kind = ItemKind::Tree(of_kind.file_name().unwrap_or_default().to_string_lossy().into_owned());
            for path in directories(&of_kind)? {
                // A tree without a listing is damaged, and discarded at its next use.
                let Some(used) = modified(&path.join(LISTING))? else { continue };
                items.push(Item { kind: kind.clone(), bytes: bytes_below(&path)?, used, path });
            }
        }
        for path in directories(&self.root.join("apt"))? {
            let Some(used) = modified(&path)? else { continue };
            items.push(Item { kind: ItemKind::Index, bytes: bytes_below(&path)?, used, path });
        }
        Ok(items)
    }

    /// Returns what [`Cache::prune`] would remove.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if the cache cannot be read.
    pub fn unneeded(&self, is_unneeded: impl Fn(&Item) -> bool) -> Result<Vec<Item>> {
        let mut items = self.items()?;
        items.retain(|item| item.kind != ItemKind::Index && is_unneeded(item));
        Ok(items)
    }

    /// Removes and returns what `is_unneeded` selects, except indexes, which `--offline` needs.
    ///
    /// # Errors
    /// - [`PackagesError::CacheInUse`]: another process uses the cache.
    /// - [`PackagesError::ReadOnly`]
    /// - [`PackagesError::Io`]: something cannot be read or removed.
    pub fn prune(&self, is_unneeded: impl Fn(&Item) -> bool) -> Result<Vec<Item>> {
        self.require_access("what is to be removed")?;
        let failed = |error| PackagesError::io("lock", self.root.join("locks/in-use"))(error);
        if !self.in_use.be_alone().map_err(failed)? {
            return Err(PackagesError::CacheInUse { path: self.root.clone() });
        }
        let removed = self.remove_items(is_unneeded);
        self.in_use.share().map_err(failed)?;
        removed
    }

    fn remove_items(&self, is_unneeded: impl Fn(&Item) -> bool) -> Result<Vec<Item>> {
        let removed = self.unneeded(is_unneeded)?;
        for item in &removed {
            if !matches!(item.kind, ItemKind::Tree(_)) {
                // Remove the stamp first: an object without a stamp is hashed again, so that no
                // half-removed one counts as sound.
                self.remove(&stamp_path(&item.path))?;
            }
            self.remove(&item.path)?;
        }
        Ok(removed)
    }

    /// Records that the object or tree of `path`, its stamp or listing, is used now.
    pub(super) fn note_use(&self, path: &Path) {
        if self.access == CacheAccess::ReadOnly {
            return;
        }
        let is_recent = |used: SystemTime| used.elapsed().is_ok_and(|age| age < RESOLUTION);
        if modified(path).is_ok_and(|used| used.is_some_and(is_recent)) {
            return;
        }
        let keep = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access: keep, last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW } };
        // In a shared cache, the file can belong to another user, who records his own uses.
        if let Err(error) = rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW) {
            tracing::debug!("cannot note that {} is used: {error}", path.display());
        }
    }
}

/// Detects an object's kind from its first bytes.
fn kind_of(path: &Path) -> Result<ItemKind> {
    let mut start = Vec::new();
    let read = bpfassay_input::open(path).and_then(|file| file.take(8).read_to_end(&mut start));
    read.map_err(PackagesError::io("read", path))?;
    Ok(match start.as_slice() {
        b"!<arch>\n" => ItemKind::Package,
        start if start.starts_with(b"070701") => ItemKind::Segment,
        _ => ItemKind::File,
    })
}

/// Sums up the sizes of the files below `directory`, without following links.
fn bytes_below(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for path in files(&directory)? {
            bytes += metadata(&path)?.map_or(0, |metadata| metadata.len());
        }
        waiting.extend(directories(&directory)?);
    }
    Ok(bytes)
}

fn directories(directory: &Path) -> Result<Vec<PathBuf>> {
    existing(directory, |kind| kind.is_dir())
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    existing(directory, |kind| kind.is_file())
}

/// Lists entries. A directory that another process has removed is empty.
fn existing(directory: &Path, is_wanted: impl Fn(fs::FileType) -> bool) -> Result<Vec<PathBuf>> {
    match entries(directory, is_wanted) {
        Err(PackagesError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        found => found,
    }
}

/// Returns `None` if another process has removed the file.
fn metadata(path: &Path) -> Result<Option<fs::Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PackagesError::Io { action: "read", path: path.to_owned(), source }),
    }
}

fn modified(path: &Path) -> Result<Option<SystemTime>> {
    metadata(path)?.map(|metadata| time_of(path, &metadata)).transpose()
}

fn time_of(path: &Path, metadata: &fs::Metadata) -> Result<SystemTime> {
    metadata.modified().map_err(PackagesError::io("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    const DAY: Duration = Duration::from_secs(86_400);

    /// Creates a cache with a package, a segment, a file and a tree, last used 40 days ago.
    fn old() -> (tempfile::TempDir, Cache, Vec<Digest>) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        let texts = [&b"!<arch>\ndebian-binary"[..], b"070701000", b"image"];
        let objects = texts.map(|text| cache.add_bytes("a test", text).unwrap().digest).to_vec();
        let fill =
            |content: &Path| fs::write(content.join("vmlinuz"), "image").map_err(PackagesError::io("write", content));
        cache.make_tree("kernel", &Digest::of(b"key"), "a test", 0, fill).unwrap();
        fs::create_dir(cache.root().join("apt/trixie-amd64")).unwrap();
        fs::write(cache.root().join("apt/trixie-amd64/index"), "twelve bytes").unwrap();
        age(&cache, 40);
        (directory, cache, objects)
    }

    /// Makes every item look last used so many days ago.
    fn age(cache: &Cache, days: u32) {
        for item in cache.items().unwrap() {
            let path = match item.kind {
                ItemKind::Tree(_) => item.path.join(LISTING),
                ItemKind::Index => item.path,
                _ => stamp_path(&item.path),
            };
            let then = SystemTime::now() - days * DAY;
            fs::File::open(path).unwrap().set_modified(then).unwrap();
        }
    }

    fn kinds(items: &[Item]) -> Vec<(ItemKind, u64)> {
        let mut kinds: Vec<_> = items.iter().map(|item| (item.kind.clone(), item.bytes)).collect();
        kinds.sort();
        kinds
    }

    fn is_old(item: &Item) -> bool {
        item.used.elapsed().is_ok_and(|age| age > 30 * DAY)
    }

    #[test]
    fn what_takes_space_is_listed_by_kind() {
        let (_directory, cache, _) = old();
        let listing = fs::metadata(
            cache
                .items()
                .unwrap()
                .iter()
                .find(|item| item.kind == ItemKind::Tree("kernel".to_owned()))
                .unwrap()
                .path
                .join(LISTING),
        );
        let expected = [
            (ItemKind::Package, 21),
            (ItemKind::Segment, 9),
            (ItemKind::File, 5),
            (ItemKind::Tree("kernel".to_owned()), 5 + listing.unwrap().len()),
            (ItemKind::Index, 12),
        ];
        assert_eq!(kinds(&cache.items().unwrap()), expected);
        assert!(cache.items().unwrap().iter().all(is_old));
    }

    #[test]
    fn what_was_used_lately_stays_and_everything_else_is_removed() {
        let (_directory, cache, objects) = old();
        let key = Digest::of(b"key");
        cache.object(&objects[1]).unwrap().unwrap();
        cache.tree("kernel", &key).unwrap().unwrap();
        let removed = cache.prune(is_old).unwrap();
        assert_eq!(kinds(&removed), [(ItemKind::Package, 21), (ItemKind::File, 5)]);
        assert!(cache.object(&objects[0]).unwrap().is_none() && cache.object(&objects[2]).unwrap().is_none());
        assert!(cache.object(&objects[1]).unwrap().is_some() && cache.tree("kernel", &key).unwrap().is_some());
        assert!(removed.iter().all(|item| !item.path.exists() && !stamp_path(&item.path).exists()));
        // Removed items are made again when needed.
        assert_eq!(cache.add_bytes("a test", b"image").unwrap().digest, objects[2]);
        age(&cache, 40);
        assert_eq!(cache.prune(is_old).unwrap().len(), 3);
        assert_eq!(cache.tree("kernel", &key).unwrap(), None);
        let left = cache.items().unwrap();
        assert_eq!(kinds(&left), [(ItemKind::Index, 12)]);
        assert!(cache.check().unwrap().removed.is_empty());
    }

    #[test]
    fn a_use_is_noted_once_an_hour() {
        let (_directory, cache, objects) = old();
        let path = cache.object(&objects[0]).unwrap().unwrap().path;
        let noted = modified(&stamp_path(&path)).unwrap().unwrap();
        assert!(noted.elapsed().unwrap() < DAY);
        cache.object(&objects[0]).unwrap().unwrap();
        assert_eq!(modified(&stamp_path(&path)).unwrap(), Some(noted));
    }

    #[test]
    fn nothing_is_removed_while_another_uses_the_cache() {
        let (_directory, cache, _) = old();
        let other = Cache::open(cache.root()).unwrap();
        assert!(matches!(cache.prune(|_| true), Err(PackagesError::CacheInUse { .. })));
        assert_eq!(cache.items().unwrap().len(), 5);
        drop(other);
        assert_eq!(cache.prune(|_| true).unwrap().len(), 4);
    }

    #[test]
    fn links_are_neither_followed_nor_counted() {
        let (directory, cache, _) = old();
        let outside = directory.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("mine"), "mine").unwrap();
        std::os::unix::fs::symlink(&outside, cache.root().join("objects/zz")).unwrap();
        std::os::unix::fs::symlink(&outside, cache.root().join("trees/zz")).unwrap();
        let items = cache.items().unwrap();
        assert_eq!(items.len(), 5, "{items:#?}");
        cache.prune(|_| true).unwrap();
        assert_eq!(fs::read(outside.join("mine")).unwrap(), b"mine");
    }
}

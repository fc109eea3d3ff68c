// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees: directories made from known inputs, with a listing of their files.

use std::{
    fs, io,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{Cache, CacheCheck, create_parent, entries, stamp::Stamp};
use crate::{
    digest::{Digest, Hasher},
    error::{PackagesError, Result},
};

const CONTENT: &str = "content";
pub(super) const LISTING: &str = "listing.json";
/// Limit on a listing, in bytes. The listing of a toolchain's root has some MB.
const MAX_LISTING: u64 = 256 << 20;

/// A directory in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// The path of the content, which is shared with other processes and must not be changed.
    pub path: PathBuf,
    /// Digest over paths, modes and contents of the files, independent of where the tree is.
    pub digest: Digest,
    /// The files, sorted by path.
    pub files: Vec<TreeFile>,
}

/// A file or symbolic link in a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeFile {
    /// The path relative to the tree.
    pub path: String,
    /// SHA-256 of the content. For a symbolic link, of its target.
    pub digest: Digest,
    /// Whether the file is executable.
    pub executable: bool,
    stamp: Stamp,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TreeListing {
    files: Vec<TreeFile>,
}

impl Cache {
    fn tree_path(&self, kind: &str, key: &Digest) -> PathBuf {
        self.root.join("trees").join(kind).join(key.to_string())
    }

    /// Returns the tree for `key`, if it exists and is sound. Size and times of every file are
    /// compared with the listing, and a file that differs is hashed. A damaged tree is reported,
    /// removed, and counts as absent.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if it cannot be read, or [`PackagesError::Damaged`] if a damaged one
    /// cannot be removed.
    pub fn tree(&self, kind: &str, key: &Digest) -> Result<Option<Tree>> {
        let home = self.tree_path(kind, key);
        self.open_tree(&home, false)
    }

    /// Returns whether the cache has a tree for `key`. Does not check the files of the tree.
    #[must_use]
    pub fn has_tree(&self, kind: &str, key: &Digest) -> bool {
        self.tree_path(kind, key).join(LISTING).is_file()
    }

    /// Returns the tree for `key`, or makes it: `fill` gets an empty directory. `what` names the
    /// tree in messages. `needed` is its approximate size in bytes. If several processes need the
    /// tree, one makes it and the others wait.
    ///
    /// # Errors
    /// - [`PackagesError::DiskFull`]: fewer than `needed` bytes are free.
    /// - [`PackagesError::Io`], [`PackagesError::Damaged`]: the cache cannot be read or written.
    /// - The errors that `fill` returns.
    pub fn make_tree<E: From<PackagesError>>(
        &self,
        kind: &str,
        key: &Digest,
        what: &str,
        needed: u64,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<Tree, E> {
        let name = key.to_string();
        let _lock = self.lock(&format!("{kind}-{}", &name[..16]))?;
        if let Some(tree) = self.tree(kind, key)? {
            return Ok(tree);
        }
        self.require_access(what)?;
        self.require_space(what, needed)?;
        let scratch = self.scratch()?;
        let content = scratch.path().join(CONTENT);
        fs::create_dir(&content).map_err(PackagesError::io("create", &content))?;
        fill(&content)?;
        let files = list(&content)?;
        let listing = TreeListing { files };
        self.write_small(&scratch.path().join(LISTING), &listing)?;
        let home = self.tree_path(kind, key);
        create_parent(&home)?;
        scratch.persist(&home).map_err(PackagesError::io("create", &home))?;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).map_err(PackagesError::io("open up", &home))?;
        Ok(Tree { path: home.join(CONTENT), digest: digest_of_all(&listing.files), files: listing.files })
    }

    fn open_tree(&self, home: &Path, hash_all: bool) -> Result<Option<Tree>> {
        let path = home.join(LISTING);
        let text = match bpfassay_input::read(&path, MAX_LISTING) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !home.exists() => return Ok(None),
            Err(error) if self.may_not_read(&path, &error) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.discard(home, "it has no listing")?;
                return Ok(None);
            }
            Err(source) => return Err(PackagesError::Io { action: "read", path, source }),
        };
        let mut listing: TreeListing = match serde_json::from_slice(&text) {
            Ok(listing) => listing,
            Err(error) => {
                self.discard(home, &format!("its listing: {error}"))?;
                return Ok(None);
            }
        };
        let content = home.join(CONTENT);
        let mut renewed = false;
        for file in &mut listing.files {
            let path = content.join(&file.path);
            let found = fs::symlink_metadata(&path).map(|metadata| (Stamp::of(&metadata), metadata));
            if !hash_all && found.as_ref().is_ok_and(|(stamp, _)| *stamp == file.stamp) {
                continue;
            }
            let sound = match &found {
                Ok((_, metadata)) => content_digest(&path, metadata)? == Some(file.digest),
                Err(_) => false,
            };
            if let (true, Ok((stamp, _))) = (sound, found) {
                renewed |= file.stamp != stamp;
                file.stamp = stamp;
            } else {
                self.discard(home, &format!("{} is not what was stored", file.path))?;
                return Ok(None);
            }
        }
        if renewed {
            self.write_small(&home.join(LISTING), &listing)?;
        } else if !hash_all {
            self.note_use(&home.join(LISTING));
        }
        Ok(Some(Tree { path: content, digest: digest_of_all(&listing.files), files: listing.files }))
    }

    /// Hashes every tree and removes damaged ones. Adds both to `checked`.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if a tree cannot be read, or [`PackagesError::Damaged`] if one cannot
    /// be removed.
    pub(super) fn check_trees(&self, checked: &mut CacheCheck) -> Result<()> {
        let trees = self.root.join("trees");
        for kind in entries(&trees, |kind| kind.is_dir())? {
            for home in entries(&kind, |kind| kind.is_dir())? {
                match self.open_tree(&home, true)? {
                    Some(tree) => {
                        checked.files += tree.files.len() as u64;
                        checked.bytes += tree.files.iter().map(|file| file.stamp.size()).sum::<u64>();
                    }
                    None => checked.removed.push(home),
                }
            }
        }
        Ok(())
    }
}

impl Tree {
    /// Returns the digest over the files below `directory`, with paths relative to it.
    #[must_use]
    pub fn digest_below(&self, directory: &str) -> Digest {
        let files = self.files.iter().filter_map(|file| {
            let path = file.path.strip_prefix(directory)?.strip_prefix('/')?;
            Some((path, file))
        });
        digest(files)
    }

    /// Returns the file at `path`, relative to the tree.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&TreeFile> {
        self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok().map(|index| &self.files[index])
    }
}

/// Hashes paths, modes and contents of the files below `directory`. [`Tree::digest_below`] gives
/// the same digest for the same files in a tree.
///
/// # Errors
/// [`PackagesError::Io`] if something in it cannot be read, or has a name that is not UTF-8.
pub fn digest_of_directory(directory: &Path) -> Result<Digest> {
    Ok(digest_of_all(&list(directory)?))
}

/// Lists the files and links below `root`, sorted by path.
fn list(root: &Path) -> Result<Vec<TreeFile>> {
    let mut files = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let absolute = root.join(&directory);
        for entry in fs::read_dir(&absolute).map_err(PackagesError::io("read", &absolute))? {
            let entry = entry.map_err(PackagesError::io("read", &absolute))?;
            let (path, relative) = (entry.path(), directory.join(entry.file_name()));
            let metadata = fs::symlink_metadata(&path).map_err(PackagesError::io("read", &path))?;
            if metadata.is_dir() {
                directories.push(relative);
            } else if let Some(digest) = content_digest(&path, &metadata)? {
                let name = relative.to_str().ok_or_else(|| {
                    PackagesError::io("list", &path)(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "its name is not UTF-8",
                    ))
                })?;
                files.push(TreeFile {
                    path: name.to_owned(),
                    digest,
                    executable: metadata.is_file() && metadata.permissions().mode() & 0o111 != 0,
                    stamp: Stamp::of(&metadata),
                });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Hashes a file's content or a link's target. Returns `None` for devices, pipes and sockets.
fn content_digest(path: &Path, metadata: &fs::Metadata) -> Result<Option<Digest>> {
    if metadata.is_file() {
        return Digest::of_file(path).map(Some);
    }
    if metadata.is_symlink() {
        let target = fs::read_link(path).map_err(PackagesError::io("read", path))?;
        return Ok(Some(Digest::of(target.as_os_str().as_bytes())));
    }
    Ok(None)
}

fn digest<'a>(files: impl IntoIterator<Item = (&'a str, &'a TreeFile)>) -> Digest {
    let mut hasher = Hasher::default();
    for (path, file) in files {
        hasher.update(format!("{} {} {path}\n", file.digest, u8::from(file.executable)).as_bytes());
    }
    hasher.finish()
}

fn digest_of_all(files: &[TreeFile]) -> Digest {
    digest(files.iter().map(|file| (file.path.as_str(), file)))
}

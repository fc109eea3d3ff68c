// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tree of files that others determined, such as unpacked packages. It is accessed through a
//! descriptor of its root. No name and no symbolic link leads out of it.

#![allow(clippy::disallowed_methods, reason = "the room for untrusted trees: descriptors that no link leaves")]

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use bpfassay_input::NoInput;
use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use crate::error::{PackagesError, Result};

/// Resolves paths in the tree. Its root is also the root of absolute symbolic links.
const BELOW: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Attempts to resolve a path while others rename entries on the way.
const ATTEMPTS: u32 = 16;

/// Treatment of symbolic links in a directory that is moved out of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// They are removed, because outside of the tree they would have other targets.
    Removed,
    /// They are kept.
    Kept,
}

/// A directory whose names and links others chose.
#[derive(Debug)]
pub struct UntrustedTree {
    root: OwnedFd,
    path: PathBuf,
}

impl UntrustedTree {
    /// Opens the tree at `path`, a directory that this program created.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if it cannot be opened, or if the kernel lacks `openat2` (before Linux
    /// 5.6).
    pub fn open(path: &Path) -> Result<Self> {
        let root = rustix::fs::open(path, PLACE | OFlags::NOFOLLOW, Mode::empty());
        let root = root.map_err(|error| PackagesError::io("open", path)(error.into()))?;
        if let Err(Errno::NOSYS | Errno::PERM) = rustix::fs::openat2(&root, ".", PLACE, Mode::empty(), BELOW) {
            return Err(PackagesError::io("unpack a package into", path)(NoInput::NoOpenat2.into()));
        }
        Ok(Self { root, path: path.to_owned() })
    }

    /// Returns the path of the root. A path below it can lead out of the tree by a link.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of `place` for messages.
    pub(crate) fn shown(&self, place: &Path) -> PathBuf {
        self.path.join(place)
    }

    /// Returns the root, for creating entries in it.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens the directory at `place`, through links that stay below the root.
    ///
    /// # Errors
    /// The system's error: ENOENT if nothing exists at that place, ENOTDIR if it is not a
    /// directory.
    pub fn directory(&self, place: &Path) -> Result<OwnedFd, Errno> {
        self.resolved(place, PLACE)
    }

    fn resolved(&self, place: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let place = if place.as_os_str().is_empty() { Path::new(".") } else { place };
        for _ in 0..ATTEMPTS {
            match rustix::fs::openat2(&self.root, place, flags, Mode::empty(), BELOW) {
                // An entry on the way was renamed, so the kernel cannot decide.
                Err(Errno::AGAIN) => {}
                found => return found,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens the directory that contains `place`. Returns the directory, and the name in it.
    fn parent<'a>(&self, place: &'a Path) -> Result<(OwnedFd, &'a OsStr), Errno> {
        let name = place.file_name().ok_or(Errno::INVAL)?;
        Ok((self.directory(place.parent().unwrap_or(Path::new("")))?, name))
    }

    fn kind(&self, place: &Path) -> Option<FileType> {
        let (parent, name) = self.parent(place).ok()?;
        let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(found.st_mode))
    }

    /// Returns whether a regular file is at `place`. Links do not count.
    pub fn is_file(&self, place: impl AsRef<Path>) -> bool {
        self.kind(place.as_ref()) == Some(FileType::RegularFile)
    }

    /// Returns whether a directory is at `place`. Links do not count.
    pub fn is_directory(&self, place: impl AsRef<Path>) -> bool {
        self.kind(place.as_ref()) == Some(FileType::Directory)
    }

    /// Lists the names in the directory at `place`, sorted. Returns none if there is no directory.
    /// Skips names that are not UTF-8.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if the directory cannot be read.
    pub fn names(&self, place: impl AsRef<Path>) -> Result<Vec<String>> {
        let place = place.as_ref();
        let failed = |error: Errno| PackagesError::io("read", self.shown(place))(error.into());
        let directory = match self.resolved(place, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Vec::new()),
            found => found.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in Dir::read_from(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            names.extend(entry.file_name().to_str().ok().filter(|name| ![".", ".."].contains(name)).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// Opens the regular file at `place` for reading. Does not follow a link at that place.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if it cannot be opened, or is not a regular file.
    pub fn open_file(&self, place: impl AsRef<Path>) -> Result<File> {
        let place = place.as_ref();
        let failed = |error: Errno| PackagesError::io("read", self.shown(place))(error.into());
        let (parent, name) = self.parent(place).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(failed)?);
        if file.metadata().map_err(PackagesError::io("read", self.shown(place)))?.is_file() {
            return Ok(file);
        }
        Err(failed(Errno::INVAL))
    }

    /// Moves the regular file at `from` to the path `to` outside of the tree. Creates the parent of
    /// `to`.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if there is no regular file, or it cannot be moved.
    pub fn take_file(&self, from: impl AsRef<Path>, to: &Path) -> Result<()> {
        self.take(from.as_ref(), to, FileType::RegularFile)
    }

    /// Moves the directory at `from` to the path `to` outside of the tree. Creates the parent of
    /// `to`.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if there is no directory, or it cannot be moved.
    pub fn take_directory(&self, from: impl AsRef<Path>, to: &Path, links: Links) -> Result<()> {
        self.take(from.as_ref(), to, FileType::Directory)?;
        if links == Links::Removed { remove_links(to) } else { Ok(()) }
    }

    fn take(&self, from: &Path, to: &Path, kind: FileType) -> Result<()> {
        let failed = |error: Errno| PackagesError::io("move", self.shown(from))(error.into());
        let (parent, name) = self.parent(from).map_err(failed)?;
        let found = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        if FileType::from_raw_mode(found.st_mode) != kind {
            return Err(failed(if kind == FileType::Directory { Errno::NOTDIR } else { Errno::INVAL }));
        }
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(PackagesError::io("create", parent))?;
        }
        rustix::fs::renameat(parent, name, CWD, to).map_err(failed)
    }

    /// Removes the directory at `place` with everything in it, if it is one.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if an entry cannot be removed.
    pub fn remove_directory(&self, place: &str) -> Result<()> {
        if !self.is_directory(place) {
            return Ok(());
        }
        for name in self.names(place)? {
            let inside = format!("{place}/{name}");
            if self.is_directory(&inside) {
                self.remove_directory(&inside)?;
            } else {
                self.remove(Path::new(&inside), AtFlags::empty())?;
            }
        }
        self.remove(Path::new(place), AtFlags::REMOVEDIR)
    }

    fn remove(&self, place: &Path, flags: AtFlags) -> Result<()> {
        let removed = self.parent(place).and_then(|(parent, name)| rustix::fs::unlinkat(parent, name, flags));
        removed.map_err(|error| PackagesError::io("remove", self.shown(place))(error.into()))
    }

    /// Creates a link to `target` at `place`, unless `place` exists. Its parent must exist.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if the link cannot be created.
    pub fn link(&self, target: &str, place: &str) -> Result<()> {
        let made = self.parent(Path::new(place)).and_then(|(parent, name)| {
            match rustix::fs::symlinkat(target, parent, name) {
                Err(Errno::EXIST) => Ok(()),
                made => made,
            }
        });
        made.map_err(|error| PackagesError::io("create", self.shown(Path::new(place)))(error.into()))
    }

    /// Creates the directory `name` in the root, unless it exists.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if it cannot be created, or `name` is something else.
    pub fn make_directory(&self, name: &str) -> Result<()> {
        match rustix::fs::mkdirat(&self.root, name, Mode::from_raw_mode(0o777)) {
            Err(Errno::EXIST) if self.is_directory(name) => Ok(()),
            made => made.map_err(|error| PackagesError::io("create", self.shown(Path::new(name)))(error.into())),
        }
    }
}

/// Removes everything below `directory` that is neither a directory nor a regular file, such as
/// symbolic links. Follows no links. Nobody else may change the directory in the meantime.
fn remove_links(directory: &Path) -> Result<()> {
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).map_err(PackagesError::io("read", &directory))? {
            let entry = entry.map_err(PackagesError::io("read", &directory))?;
            let kind = entry.file_type().map_err(PackagesError::io("read", entry.path()))?;
            if kind.is_dir() {
                left.push(entry.path());
            } else if !kind.is_file() {
                fs::remove_file(entry.path()).map_err(PackagesError::io("remove", entry.path()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, os::unix::fs::symlink};

    use super::*;

    /// A tree, and a directory of the host to which links in the tree lead.
    fn tree() -> (tempfile::TempDir, UntrustedTree) {
        let work = tempfile::tempdir().unwrap();
        let (root, host) = (work.path().join("root"), work.path().join("host"));
        for directory in [root.join("usr/lib/x"), host.clone(), work.path().join("out")] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(root.join("usr/lib/x/file"), "of the tree").unwrap();
        fs::write(host.join("file"), "of this machine").unwrap();
        for (target, name) in [
            ("usr/lib", "lib"),
            ("/usr/lib", "absolute"),
            ("../host", "up"),
            ("/proc/self/cwd", "here"),
            (host.to_str().unwrap(), "away"),
            ("../host/file", "file"),
        ] {
            symlink(target, root.join(name)).unwrap();
        }
        symlink(host.join("file"), root.join("usr/lib/x/link")).unwrap();
        let tree = UntrustedTree::open(&root).unwrap();
        (work, tree)
    }

    #[test]
    fn links_are_followed_in_the_tree_and_never_out_of_it() {
        let (work, tree) = tree();
        for place in ["usr/lib/x", "lib/x", "absolute/x", "../usr/lib/x", "lib/../../usr/lib/x"] {
            assert_eq!(tree.names(place).unwrap(), ["file", "link"], "{place}");
            let file = format!("{place}/file");
            let mut text = String::new();
            tree.open_file(&file).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "of the tree");
            assert!(tree.is_file(&file) && !tree.is_file(format!("{place}/link")));
            assert!(tree.open_file(format!("{place}/link")).is_err());
        }
        for place in ["up", "here", "away"] {
            assert_eq!(tree.names(place).unwrap(), Vec::<String>::new(), "{place}");
            let file = format!("{place}/file");
            assert!(!tree.is_file(&file) && tree.open_file(&file).is_err(), "{place}");
            assert!(tree.take_file(&file, &work.path().join("out/file")).is_err(), "{place}");
            assert!(!tree.is_directory(place));
            assert!(tree.take_directory(place, &work.path().join("out/d"), Links::Kept).is_err(), "{place}");
            tree.remove_directory(place).unwrap();
            assert!(tree.link("x", &format!("{place}/made")).is_err(), "{place}");
            assert!(tree.make_directory(place).is_err(), "{place}");
        }
        let host: Vec<_> =
            fs::read_dir(work.path().join("host")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(host, ["file"]);
        assert!(tree.take_file("file", &work.path().join("out/file")).is_err());
        assert!(UntrustedTree::open(&work.path().join("root/away")).is_err(), "the root is no link either");
    }

    #[test]
    fn what_is_taken_out_has_no_links_unless_they_are_wanted() {
        for (links, expected) in [(Links::Removed, false), (Links::Kept, true)] {
            let (work, tree) = tree();
            let to = work.path().join("out/deep/x");
            tree.take_directory("lib/x", &to, links).unwrap();
            assert_eq!(fs::read_to_string(to.join("file")).unwrap(), "of the tree");
            assert_eq!(to.join("link").is_symlink(), expected);
            assert_eq!(fs::read_to_string(work.path().join("host/file")).unwrap(), "of this machine");
            tree.remove_directory("usr").unwrap();
            assert!(!tree.is_directory("usr"));
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates files below a directory. No name and no symbolic link leads out of it.

#![allow(clippy::disallowed_methods, reason = "the path is only remembered; files are made by descriptors")]

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

use super::{EntryKind, MOST_PATH, UnpackFault, place_of, wrong};
use crate::untrusted_tree::UntrustedTree;

/// Prefix of the temporary name of a file that will replace another.
const NEW: &str = ".bpfassay-new-";
/// Makes temporary names differ between threads.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A directory that a package is unpacked into. Several threads can unpack into one.
#[derive(Debug)]
pub(super) struct UnpackDirectory<'a> {
    tree: &'a UntrustedTree,
    /// The directory of the latest entry.
    last: Option<(PathBuf, OwnedFd)>,
    /// Directories that were created or found.
    known: BTreeSet<PathBuf>,
}

impl<'a> UnpackDirectory<'a> {
    /// Unpacks into the root of `tree`.
    pub(super) fn of(tree: &'a UntrustedTree) -> Self {
        Self { tree, last: None, known: BTreeSet::new() }
    }

    /// Creates an entry at `place`, relative to the root. Atomically replaces an existing entry,
    /// unless it is a directory.
    pub(super) fn take(&mut self, place: &Path, kind: EntryKind, content: &mut dyn Read) -> Result<(), UnpackFault> {
        if kind == EntryKind::Directory {
            return self.directory(place).map(drop);
        }
        let Some(name) = place.file_name() else { return Ok(()) };
        let whole = self.tree.shown(place);
        let failed = |action| {
            let whole = whole.clone();
            move |error: Errno| UnpackFault::Place(action, whole, error.into())
        };
        let target = match &kind {
            EntryKind::Link(target) if target.len() > MOST_PATH || target.is_empty() || target.contains(&0) => {
                return wrong(format!("the target of the link `{}` is none", place.display()));
            }
            EntryKind::Same(target) => match place_of(target)? {
                Some(target) => Some(self.found(&target)?),
                None => return wrong(format!("`{}` is another name of no file", place.display())),
            },
            _ => None,
        };
        let parent = self.directory(place.parent().unwrap_or(Path::new("")))?;
        let mut make = |name: &OsStr| -> Result<(), UnpackFault> {
            match &kind {
                EntryKind::Directory => Ok(()),
                EntryKind::Link(link) => {
                    rustix::fs::symlinkat(OsStr::from_bytes(link), parent, name).map_err(failed("create"))
                }
                EntryKind::Same(_) => {
                    let Some((directory, file)) = &target else { return Ok(()) };
                    // The link does not follow symbolic links.
                    rustix::fs::linkat(directory, file, parent, name, AtFlags::empty()).map_err(failed("create"))
                }
                EntryKind::File { size, executable } => {
                    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let mode = Mode::from_raw_mode(if *executable { 0o777 } else { 0o666 });
                    let file = rustix::fs::openat(parent, name, flags, mode).map_err(failed("create"))?;
                    copy(content, *size, &mut File::from(file), &whole)
                }
            }
        };
        match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => match make(name) {
                // Another thread was faster.
                Err(UnpackFault::Place("create", _, error)) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            },
            Err(error) => return Err(failed("replace")(error)),
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
                return wrong(format!("`{}` is a directory and something else", place.display()));
            }
            Ok(_) => {}
        }
        // A compiler can be reading the existing file.
        let new = format!("{NEW}{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        make(OsStr::new(&new))?;
        rustix::fs::renameat(parent, &new, parent, name).map_err(failed("replace"))?;
        // rename(2) does nothing if both names are the same file.
        match rustix::fs::unlinkat(parent, &new, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failed("remove")(error)),
        }
    }

    /// Finds the existing file at `place`: its directory, and its name there.
    fn found(&mut self, place: &Path) -> Result<(OwnedFd, PathBuf), UnpackFault> {
        let wanted = place.file_name().map(PathBuf::from).unwrap_or_default();
        let parent = self.tree.directory(place.parent().unwrap_or(Path::new("")));
        let parent =
            parent.map_err(|_| UnpackFault::Package(format!("`{}` is linked and is not there", place.display())))?;
        let is_file = rustix::fs::statat(&parent, &wanted, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile);
        if is_file { Ok((parent, wanted)) } else { wrong(format!("`{}` is linked and is no file", place.display())) }
    }

    /// Opens the directory at `place`. Creates it and its parents if they are missing.
    fn directory(&mut self, place: &Path) -> Result<BorrowedFd<'_>, UnpackFault> {
        if self.last.as_ref().is_none_or(|(last, _)| last != place) {
            if !self.known.contains(place) {
                let mut way = PathBuf::new();
                for part in place {
                    let parent = way.clone();
                    way.push(part);
                    if !self.known.contains(&way) {
                        self.make(&parent, part, &way)?;
                        self.known.insert(way.clone());
                    }
                }
            }
            let found = self.tree.directory(place);
            let found = found.map_err(|error| UnpackFault::Place("open", self.tree.shown(place), error.into()))?;
            self.last = Some((place.to_owned(), found));
        }
        match &self.last {
            Some((_, found)) => Ok(found.as_fd()),
            None => Ok(self.tree.root()),
        }
    }

    /// Creates the directory `name` in the directory at `parent`, unless a directory or a link to
    /// one exists.
    fn make(&self, parent: &Path, name: &OsStr, whole: &Path) -> Result<(), UnpackFault> {
        let failed = |error: Errno| UnpackFault::Place("create", self.tree.shown(whole), error.into());
        match self.tree.directory(whole) {
            Ok(_) => return Ok(()),
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return wrong(format!("`{}` is a directory and something else", whole.display()));
            }
            Err(error) => return Err(failed(error)),
        }
        let parent = self.tree.directory(parent).map_err(failed)?;
        match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
            // Another thread was faster.
            Err(Errno::EXIST) if self.tree.directory(whole).is_ok() => Ok(()),
            // Entries below a dangling link would be created elsewhere.
            Err(Errno::EXIST) => wrong(format!("`{}` is a directory and a link to nothing", whole.display())),
            made => made.map_err(failed),
        }
    }
}

/// Copies all `size` bytes of `content`. A failed read is a fault of the package, a failed write a
/// fault of the target.
fn copy(content: &mut dyn Read, size: u64, file: &mut File, path: &Path) -> Result<(), UnpackFault> {
    let mut buffer = [0; 1 << 16];
    let mut left = size;
    while left > 0 {
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let length = match content.read(buffer.get_mut(..most).unwrap_or_default()) {
            Ok(0) => return wrong("it is cut off"),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        let written = io::Write::write_all(file, buffer.get(..length).unwrap_or_default());
        written.map_err(|error| UnpackFault::Place("write", path.to_owned(), error))?;
        left -= length as u64;
    }
    Ok(())
}

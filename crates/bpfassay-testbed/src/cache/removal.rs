// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removing files and directories of the cache, without following a symbolic link on the way to it or in it.

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path},
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags},
    io::Errno,
};

/// The directory `name` in `parent`, which must be one itself and no link to one.
///
/// # Errors
/// Those of openat(2); `ENOTDIR` or `ELOOP` where `name` is a link or no directory.
pub(super) fn open_directory(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Removes what is at `path` below `root`, a directory with everything in it; absent is fine.
///
/// # Errors
/// Those of the system; of a path that leaves `root`, by `..` or through a symbolic link.
pub(super) fn remove_below(root: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leaves the cache")),
        }
    }
    let Some((last, parents)) = names.split_last() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is the cache itself"));
    };
    let mut directory = root.try_clone_to_owned()?;
    for name in parents {
        directory = match open_directory(directory.as_fd(), *name) {
            Ok(next) => next,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
    }
    let name = CString::new(last.as_bytes())?;
    Ok(remove_at(directory.as_fd(), &name)?)
}

/// Removes the entry `name` of `parent`, a directory with everything in it; absent is fine.
///
/// # Errors
/// Those of unlinkat(2) and openat(2), for the entry or for what is in it.
pub(super) fn remove_at(parent: BorrowedFd<'_>, name: &std::ffi::CStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // Linux returns EISDIR, POSIX EPERM.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    let directory = match open_directory(parent, name) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            remove_at(directory.as_fd(), entry.file_name())?;
        }
    }
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

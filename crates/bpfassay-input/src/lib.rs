// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input files: each is a regular file of a bounded size, or the error names what it is.
//!
//! Here: opening and reading files of users, and of what their files name beside themselves; strict
//! TOML, with a place for every complaint ([`document`]). Not here: what the keys of a file mean;
//! files that this project writes.
//!
//! A pipe would block whoever opens it, a device has no end, and a symbolic link in another user's
//! directory leads to files that this user may not read. Every function here opens without blocking
//! and looks at what it has opened.

#![forbid(unsafe_code)]

pub mod document;

use std::{
    fs::{self, File},
    io::{self, Read},
    os::{fd::OwnedFd, unix::fs::FileTypeExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags},
    io::Errno,
};

/// Why something is no input file; the source of an [`io::Error`], beside those of the system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoInput {
    /// A pipe, a socket, a device or a directory.
    #[error("it is {0} and no regular file")]
    NotRegular(&'static str),
    /// More bytes than there may be.
    #[error("it has more than {limit} bytes, which is the limit for such a file")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The way to it leaves the directory.
    #[error("it leads out of the directory {}: put the file itself there", .0.display())]
    Outside(PathBuf),
    /// The kernel cannot say whether the way to it leaves the directory.
    #[error("this host's kernel has no openat2 (Linux 5.6), without which no file beside another is opened")]
    NoOpenat2,
}

impl From<NoInput> for io::Error {
    fn from(problem: NoInput) -> Self {
        Self::new(io::ErrorKind::InvalidInput, problem)
    }
}

/// How input files are opened: a pipe does not block, and a terminal does not become ours.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens the file at `path`, symbolic links followed: for paths that the user gives.
///
/// # Errors
/// The system's error where the file cannot be opened; [`NoInput::NotRegular`] for a directory, a
/// device, a pipe or a socket.
pub fn open(path: &Path) -> io::Result<File> {
    regular(rustix::fs::open(path, FLAGS, Mode::empty())?)
}

/// Opens the file at `path`, on the way to which no symbolic link may lie: for what was found by
/// walking through a directory.
///
/// # Errors
/// The system's error where the file cannot be opened, ELOOP for a symbolic link;
/// [`NoInput::NotRegular`] for a directory, a device, a pipe or a socket.
pub fn open_unlinked(path: &Path) -> io::Result<File> {
    let found = match rustix::fs::openat2(rustix::fs::CWD, path, FLAGS, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // An older kernel, or a container that does not know the call: the last part of the path,
        // at least.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::open(path, FLAGS | OFlags::NOFOLLOW, Mode::empty()),
        found => found,
    };
    regular(found?)
}

/// Opens the file `name` below `directory`. Symbolic links are followed as long as they do not
/// leave the directory.
///
/// # Errors
/// The system's error where the file cannot be opened; [`NoInput::Outside`] where the path leaves
/// `directory`, [`NoInput::NotRegular`] where it names no regular file, [`NoInput::NoOpenat2`] on a
/// kernel before Linux 5.6.
pub fn open_beneath(directory: &Path, name: &Path) -> io::Result<File> {
    regular(beneath(directory, name, FLAGS)?)
}

/// The path, without symbolic links, of the directory `name` below `directory`; links are followed
/// as by [`open_beneath`].
///
/// # Errors
/// The system's error where the directory cannot be opened, ENOTDIR for something else;
/// [`NoInput::Outside`] where the path leaves `directory`,
/// [`NoInput::NoOpenat2`] on a kernel before Linux 5.6.
pub fn directory_beneath(directory: &Path, name: &Path) -> io::Result<PathBuf> {
    let found = beneath(directory, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
    let path = directory.join(name).canonicalize()?;
    // The directory that was opened and the one of this path are the same, unless it is exchanged
    // at this moment.
    let (held, named) = (rustix::fs::fstat(&found)?, rustix::fs::lstat(&path)?);
    if (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino) {
        return Ok(path);
    }
    Err(NoInput::Outside(directory.to_owned()).into())
}

fn beneath(directory: &Path, name: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    // The directory of a file that is given by its name alone.
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let root = rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..16 {
        return match rustix::fs::openat2(&root, name, flags, Mode::empty(), resolve) {
            Ok(found) => Ok(found),
            // Something was renamed on the way, so that the kernel cannot decide it.
            Err(Errno::AGAIN) => continue,
            Err(Errno::XDEV) => Err(NoInput::Outside(directory.to_owned()).into()),
            Err(Errno::NOSYS) => Err(NoInput::NoOpenat2.into()),
            Err(error) => Err(error.into()),
        };
    }
    Err(Errno::AGAIN.into())
}

/// All of the file at `path`, which has `limit` bytes at most.
///
/// # Errors
/// As [`open`], and [`NoInput::TooLarge`] for more than `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_file(open(path)?, limit)
}

/// All of the text file at `path`, which has `limit` bytes at most.
///
/// # Errors
/// As [`read`], and `InvalidData` for text that is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    text(read(path, limit)?)
}

/// All of the file `name` below `directory`, which has `limit` bytes at most.
///
/// # Errors
/// As [`open_beneath`], and [`NoInput::TooLarge`] for more than `limit` bytes.
pub fn read_beneath(directory: &Path, name: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_file(open_beneath(directory, name)?, limit)
}

/// All of the text file `name` below `directory`, which has `limit` bytes at most.
///
/// # Errors
/// As [`read_beneath`], and `InvalidData` for text that is not UTF-8.
pub fn read_text_beneath(directory: &Path, name: &Path, limit: u64) -> io::Result<String> {
    text(read_beneath(directory, name, limit)?)
}

/// All of an open file, which has `limit` bytes at most.
///
/// # Errors
/// The system's error where it cannot be read; [`NoInput::TooLarge`] for more than `limit` bytes.
pub fn read_file(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = || Err(NoInput::TooLarge { limit }.into());
    let length = file.metadata()?.len();
    if length > limit {
        return too_large();
    }
    let mut bytes = Vec::new();
    // A file of another file system, such as /proc, may have more than its size.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { too_large() } else { Ok(bytes) }
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8"))
}

fn regular(found: OwnedFd) -> io::Result<File> {
    let file = File::from(found);
    match kind(file.metadata()?.file_type()) {
        None => Ok(file),
        Some(kind) => Err(NoInput::NotRegular(kind).into()),
    }
}

/// What something is that is no regular file.
fn kind(kind: fs::FileType) -> Option<&'static str> {
    if kind.is_file() {
        return None;
    }
    Some(match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "something else",
    })
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input files: each is a regular file of a bounded size, or the error says what it is instead.
//!
//! This crate opens and reads files of users, and files that those files name. It also reads strict
//! TOML, with a place for every complaint ([`document`]). It does not know what the keys of a file
//! mean, and does not read files that this project writes.
//!
//! A pipe blocks whoever opens it, a device has no end, and a symbolic link in another user's
//! directory can lead to files that the other user cannot read. Every function here therefore opens
//! without blocking and checks what it has opened.

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

/// Why something is not accepted as an input file. It is the source of an [`io::Error`]; other
/// [`io::Error`]s come from the system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoInput {
    /// A pipe, a socket, a device or a directory.
    #[error("it is {0} and no regular file")]
    NotRegular(&'static str),
    /// The file is larger than the limit.
    #[error("it has more than {limit} bytes, which is the limit for such a file")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The path leads out of this directory.
    #[error("it leads out of the directory {}: put the file itself there", .0.display())]
    Outside(PathBuf),
    /// The kernel has no `openat2`, which checks whether a path leaves a directory.
    #[error("this host's kernel has no openat2 (Linux 5.6), without which no file beside another is opened")]
    NoOpenat2,
}

impl From<NoInput> for io::Error {
    fn from(problem: NoInput) -> Self {
        Self::new(io::ErrorKind::InvalidInput, problem)
    }
}

/// Flags for every input file. Opening a pipe does not block, and a terminal does not become the
/// controlling terminal.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens the file at `path`, which the user gave. Symbolic links are followed.
///
/// # Errors
/// The system's error if the file cannot be opened. [`NoInput::NotRegular`] for a directory, a
/// device, a pipe or a socket.
pub fn open(path: &Path) -> io::Result<File> {
    regular(rustix::fs::open(path, FLAGS, Mode::empty())?)
}

/// Opens the file at `path`, which was found by walking through a directory. No part of the path
/// can be a symbolic link.
///
/// # Errors
/// The system's error if the file cannot be opened, which is ELOOP for a symbolic link.
/// [`NoInput::NotRegular`] for a directory, a device, a pipe or a socket.
pub fn open_unlinked(path: &Path) -> io::Result<File> {
    let found = match rustix::fs::openat2(rustix::fs::CWD, path, FLAGS, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // An older kernel, or a container that does not know the call: check the last part at
        // least.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::open(path, FLAGS | OFlags::NOFOLLOW, Mode::empty()),
        found => found,
    };
    regular(found?)
}

/// Opens the file `name` below `directory`. Symbolic links must not leave the directory.
///
/// # Errors
/// The system's error if the file cannot be opened. [`NoInput::Outside`] if the path leaves
/// `directory`. [`NoInput::NotRegular`] if it is not a regular file. [`NoInput::NoOpenat2`] before
/// Linux 5.6.
pub fn open_beneath(directory: &Path, name: &Path) -> io::Result<File> {
    regular(beneath(directory, name, FLAGS)?)
}

/// Returns the path of the directory `name` below `directory`, with all symbolic links resolved.
/// Links are followed as in [`open_beneath`].
///
/// # Errors
/// The system's error if the directory cannot be opened (ENOTDIR if it is something else).
/// Otherwise [`NoInput::Outside`] if the path leaves `directory`, or [`NoInput::NoOpenat2`] before
/// Linux 5.6.
pub fn directory_beneath(directory: &Path, name: &Path) -> io::Result<PathBuf> {
    let found = beneath(directory, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
    let path = directory.join(name).canonicalize()?;
    // The opened directory and the one at this path differ only if somebody replaced it in between.
    let (held, named) = (rustix::fs::fstat(&found)?, rustix::fs::lstat(&path)?);
    if (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino) {
        return Ok(path);
    }
    Err(NoInput::Outside(directory.to_owned()).into())
}

fn beneath(directory: &Path, name: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    // A file given by its name alone has an empty parent path.
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let root = rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..16 {
        return match rustix::fs::openat2(&root, name, flags, Mode::empty(), resolve) {
            Ok(found) => Ok(found),
            // Something on the path was renamed in the meantime, so the kernel cannot decide.
            Err(Errno::AGAIN) => continue,
            Err(Errno::XDEV) => Err(NoInput::Outside(directory.to_owned()).into()),
            Err(Errno::NOSYS) => Err(NoInput::NoOpenat2.into()),
            Err(error) => Err(error.into()),
        };
    }
    Err(Errno::AGAIN.into())
}

/// Reads all of the file at `path`, at most `limit` bytes.
///
/// # Errors
/// The errors of [`open`], and [`NoInput::TooLarge`] for more than `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_file(open(path)?, limit)
}

/// Reads all of the text file at `path`, at most `limit` bytes.
///
/// # Errors
/// The errors of [`read`], and `InvalidData` for text that is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    read_text_file(open(path)?, limit)
}

/// Reads the rest of an open text file, at most `limit` bytes.
///
/// # Errors
/// The errors of [`read_file`], and `InvalidData` for text that is not UTF-8.
pub fn read_text_file(file: File, limit: u64) -> io::Result<String> {
    text(read_file(file, limit)?)
}

/// Reads all of the file `name` below `directory`, at most `limit` bytes.
///
/// # Errors
/// The errors of [`open_beneath`], and [`NoInput::TooLarge`] for more than `limit` bytes.
pub fn read_beneath(directory: &Path, name: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_file(open_beneath(directory, name)?, limit)
}

/// Reads all of the text file `name` below `directory`, at most `limit` bytes.
///
/// # Errors
/// The errors of [`read_beneath`], and `InvalidData` for text that is not UTF-8.
pub fn read_text_beneath(directory: &Path, name: &Path, limit: u64) -> io::Result<String> {
    text(read_beneath(directory, name, limit)?)
}

/// Reads all of an open file, at most `limit` bytes.
///
/// # Errors
/// The system's error if it cannot be read. [`NoInput::TooLarge`] for more than `limit` bytes.
pub fn read_file(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = || Err(NoInput::TooLarge { limit }.into());
    let length = file.metadata()?.len();
    if length > limit {
        return too_large();
    }
    let mut bytes = Vec::new();
    // Files of some file systems, such as /proc, have more bytes than their size says.
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

/// Names the type of a file that is not regular; `None` for a regular file.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and unpacks package files of distributions, `.deb` (dpkg) and `.rpm`. This needs no
//! programs of the host and no root, and runs nothing in a package.
//!
//! A package can come from anywhere. Unpacked files stay below the target directory, even through
//! symbolic links in the package. Their number and size are bounded. Devices are refused, and
//! owners and special permissions are ignored.

#![allow(clippy::disallowed_methods, reason = "every part of an entry's path is checked to be a name")]

mod ar;
mod cpio;
mod deb;
mod file_table;
mod rpm;
pub mod stream;
mod tar;
mod unpacked_directory;

use std::{
    fs::File,
    io::{self, BufReader, Read, SeekFrom},
    path::{Path, PathBuf},
};

use self::unpacked_directory::UnpackDirectory;
use crate::{
    cache::free_space,
    error::{PackagesError, Result, package_error::PackageError},
    safe_names::{NotAName, PackageArchitecture, PackageName, PackageVersion},
    untrusted_tree::UntrustedTree,
};

/// Largest usual ratio of a package's content to its size. The modules of bookworm's kernels are
/// not compressed.
pub const GROWTH: u64 = 6;

/// Largest accepted ratio of a package's content to its size, in addition to [`SLACK`]. Kernels
/// have six times the size of their packages.
const MOST_GROWTH: u64 = 64;
/// Content that every package may have, in bytes, however small it is.
const SLACK: u64 = 64 << 20;
/// Largest number of entries of a package. Packages of kernels have about 10,000.
const MOST_ENTRIES: u64 = 1 << 20;
/// Longest path or target of a link, in bytes (`PATH_MAX` of Linux).
const MOST_PATH: usize = 4096;

/// The description that a package has of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Name of the package.
    pub name: PackageName,
    /// Version. RPM packages have their release in it. It includes the epoch, if there is one.
    pub version: PackageVersion,
    /// Architecture, as the distribution names it.
    pub architecture: PackageArchitecture,
}

/// Why an entry could not be unpacked.
#[derive(Debug)]
pub(crate) enum UnpackFault {
    /// A fault of the package.
    Package(String),
    /// A fault of the target: the failed action, its path, and the system's error.
    Place(&'static str, PathBuf, io::Error),
}

/// A failed read means that the package is cut off or damaged.
impl From<io::Error> for UnpackFault {
    fn from(error: io::Error) -> Self {
        Self::Package(match error.kind() {
            io::ErrorKind::UnexpectedEof => "it is cut off".to_owned(),
            _ => error.to_string(),
        })
    }
}

impl From<NotAName> for UnpackFault {
    fn from(error: NotAName) -> Self {
        Self::Package(error.to_string())
    }
}

/// Returns a fault of the package.
fn wrong<T>(problem: impl Into<String>) -> Result<T, UnpackFault> {
    Err(UnpackFault::Package(problem.into()))
}

/// The kind of an archive's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// A regular file with its size in bytes, and whether it is executable.
    File { size: u64, executable: bool },
    /// A directory.
    Directory,
    /// A symbolic link with its target.
    Link(Vec<u8>),
    /// Another name (hard link) of the earlier entry at this path.
    Same(Vec<u8>),
}

/// Receives the entries of an archive: path, kind, and a reader of a file's content.
type Taker<'a> = dyn FnMut(&[u8], EntryKind, &mut dyn Read) -> Result<(), UnpackFault> + 'a;

/// Returns the largest content of a package of `size` bytes that is read, in bytes.
#[must_use]
pub fn most_bytes(size: u64) -> u64 {
    size.saturating_mul(MOST_GROWTH).saturating_add(SLACK)
}

/// Unpacks the package at `path` into `tree`, and returns its description. The content tells `.deb`
/// from `.rpm`. Skips the paths `left_out`, which begin with `./`, and in which `*` is one
/// component. `what` names the whole in messages. The files belong to the calling user, and nothing
/// of the package is run.
///
/// # Errors
/// [`PackagesError::Package`] if the file cannot be read, is not a package, or is damaged. It is
/// also returned for entries that do not belong below the directory. [`PackagesError::DiskFull`] if
/// the disk fills up, [`PackagesError::Io`] if files cannot be written.
pub fn unpack(path: &Path, tree: &UntrustedTree, left_out: &[&str], what: &str) -> Result<About> {
    let mut size = 0;
    let mut taken = || -> Result<About, UnpackFault> {
        let mut into = UnpackDirectory::of(tree);
        let mut entries = 0;
        let mut take = |path: &[u8], kind: EntryKind, content: &mut dyn Read| {
            entries += 1;
            if entries > MOST_ENTRIES {
                return wrong(format!("it has more than {MOST_ENTRIES} entries"));
            }
            let Some(place) = place_of(path)? else { return Ok(()) };
            if left_out.iter().any(|left_out| is_below(&place, left_out)) {
                Ok(())
            } else {
                into.take(&place, kind, content)
            }
        };
        read(path, &mut size, &mut take)
    };
    taken().map_err(|fault| failed(fault, path, &tree.shown(Path::new("")), size, what))
}

/// Returns whether `place` is `left_out` or below it.
fn is_below(place: &Path, left_out: &str) -> bool {
    let mut parts = place.iter();
    let mut wanted = left_out.split('/').filter(|part| !matches!(*part, "" | "."));
    wanted.all(|wanted| parts.next().is_some_and(|part| wanted == "*" || part == wanted))
}

/// Reads the description of the package at `path` without unpacking it. Does not compare the digest
/// of an RPM package's payload.
///
/// # Errors
/// [`PackagesError::Package`] if the file cannot be read or is not a package.
pub fn about(path: &Path) -> Result<About> {
    let mut size = 0;
    let mut read = || -> Result<About, UnpackFault> {
        let mut reader = opened(path, &mut size)?;
        match PackageFormat::of(&mut reader)? {
            PackageFormat::Deb => deb::about(&mut reader, most_bytes(size)),
            PackageFormat::Rpm => rpm::RpmHeader::read(&mut reader).map(|header| header.about),
        }
    };
    read().map_err(|fault| failed(fault, path, path, size, "a package"))
}

/// Returns whether the file at `path` begins like a package.
#[must_use]
pub fn is_package(path: &Path) -> bool {
    bpfassay_input::open(path).is_ok_and(|file| PackageFormat::of(&mut BufReader::new(file)).is_ok())
}

fn opened(path: &Path, size: &mut u64) -> Result<BufReader<File>, UnpackFault> {
    let file = bpfassay_input::open(path).map_err(|source| UnpackFault::Place("open", path.to_owned(), source))?;
    *size = file.metadata()?.len();
    Ok(BufReader::with_capacity(1 << 18, file))
}

fn read(path: &Path, size: &mut u64, take: &mut Taker<'_>) -> Result<About, UnpackFault> {
    let mut reader = opened(path, size)?;
    match PackageFormat::of(&mut reader)? {
        PackageFormat::Deb => deb::read(&mut reader, most_bytes(*size), take),
        PackageFormat::Rpm => rpm::read(reader, most_bytes(*size), take),
    }
}

/// The format of a package file.
enum PackageFormat {
    Deb,
    Rpm,
}

impl PackageFormat {
    /// Tells the format from the first bytes, and rewinds `reader`.
    fn of(reader: &mut (impl Read + io::Seek)) -> Result<Self, UnpackFault> {
        let mut start = [0; 8];
        reader.read_exact(&mut start)?;
        reader.seek(SeekFrom::Start(0))?;
        match &start {
            ar::MAGIC => Ok(Self::Deb),
            start if start.starts_with(&rpm::LEAD_MAGIC) => Ok(Self::Rpm),
            _ => wrong("it begins like neither"),
        }
    }
}

/// Returns the path of an entry, relative to the root, or `None` for the root.
fn place_of(path: &[u8]) -> Result<Option<PathBuf>, UnpackFault> {
    let text =
        str::from_utf8(path).map_err(|_| UnpackFault::Package("the name of an entry is not UTF-8".to_owned()))?;
    let mut place = PathBuf::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => return wrong(format!("`{}` leads out of the package", text.escape_debug())),
            part if part.contains('\0') => return wrong("the name of an entry has a NUL in it"),
            part => place.push(part),
        }
    }
    if text.len() > MOST_PATH {
        return wrong("the name of an entry is too long");
    }
    Ok((!place.as_os_str().is_empty()).then_some(place))
}

fn failed(fault: UnpackFault, package: &Path, directory: &Path, size: u64, what: &str) -> PackagesError {
    match fault {
        UnpackFault::Package(problem) => PackageError::Content { path: package.to_owned(), problem }.into(),
        UnpackFault::Place("open", path, source) if path == package => PackageError::Open { path, source }.into(),
        UnpackFault::Place(_, _, source)
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
        {
            let free = free_space(directory).unwrap_or(0);
            let (what, path) = (what.to_owned(), directory.to_owned());
            PackagesError::DiskFull { what, path, needed: size.saturating_mul(GROWTH), free }
        }
        UnpackFault::Place(action, path, source) => PackagesError::Io { action, path, source },
    }
}

/// Lists the entries of a package in memory, and whether all could be read. For fuzz targets.
pub(crate) fn entries(bytes: &[u8], limit: u64) -> (Vec<(PathBuf, u64)>, bool) {
    let mut found = Vec::new();
    let mut take = |path: &[u8], _: EntryKind, content: &mut dyn Read| {
        let Some(place) = place_of(path)? else { return Ok(()) };
        found.push((place, io::copy(content, &mut io::sink())?));
        Ok(())
    };
    let mut reader = io::Cursor::new(bytes);
    let read = PackageFormat::of(&mut reader).and_then(|form| match form {
        PackageFormat::Deb => deb::read(&mut reader, limit, &mut take),
        PackageFormat::Rpm => rpm::read(reader, limit, &mut take),
    });
    let is_whole = read.is_ok();
    (found, is_whole)
}

#[cfg(test)]
mod tests;

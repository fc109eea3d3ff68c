// SPDX-License-Identifier: MIT OR Apache-2.0
//! Package files of distributions, read and unpacked by this program itself: `.deb` (dpkg) and
//! `.rpm`, without programs of the host, without root, and without running anything in them.
//!
//! A package may come from anywhere. What is unpacked stays below the directory that it is unpacked
//! into, symbolic links in the package included, and is bounded in bytes and entries. Devices are
//! refused, and neither owners nor special permissions are taken over.

#![allow(clippy::disallowed_methods, reason = "every part of an entry's path is checked to be a name")]

mod ar;
mod cpio;
mod deb;
mod directory;
mod file_table;
mod rpm;
pub(crate) mod stream;
mod tar;

use std::{
    fs::File,
    io::{self, BufReader, Read, SeekFrom},
    path::{Path, PathBuf},
};

use self::directory::Directory;
use crate::{
    Error, Result,
    cache::free_space,
    names::{NotAName, PackageArchitecture, PackageName, PackageVersion},
    untrusted_tree::UntrustedTree,
};

/// How much larger than a package its content is, as a rule at most (the modules of bookworm's
/// kernels are not compressed).
pub const GROWTH: u64 = 6;

/// How many times larger than the package its content may be, besides [`SLACK`]. Kernels have six
/// times the size of their packages.
const MOST_GROWTH: u64 = 64;
/// Bytes that a small package may unpack to in any case.
const SLACK: u64 = 64 << 20;
/// Entries that a package may have; those of kernels have about 10,000.
const MOST_ENTRIES: u64 = 1 << 20;
/// Longest path or target of a link, in bytes (`PATH_MAX` of Linux).
const MOST_PATH: usize = 4096;

/// Why a package cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// It cannot be opened or read.
    #[error("cannot read the package {}: check that it exists, is a regular file, and may be read", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no package, or holds what may not be in one.
    #[error("{} is no package that can be unpacked (.deb or .rpm), or is damaged: {problem}; download or copy it again", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// What a package says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its name.
    pub name: PackageName,
    /// Its version; with its release in the case of an RPM package, and an epoch where it has one.
    pub version: PackageVersion,
    /// Its architecture, by the name that its distribution has for it.
    pub architecture: PackageArchitecture,
}

/// Why an entry could not be unpacked.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Because of the package.
    Package(String),
    /// Because of the place: what was to be done, with what, and the system's answer.
    Place(&'static str, PathBuf, io::Error),
}

/// Reading fails where the package is cut off or damaged.
impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Package(match error.kind() {
            io::ErrorKind::UnexpectedEof => "it is cut off".to_owned(),
            _ => error.to_string(),
        })
    }
}

impl From<NotAName> for Fault {
    fn from(error: NotAName) -> Self {
        Self::Package(error.to_string())
    }
}

/// A fault of the package.
fn wrong<T>(problem: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Package(problem.into()))
}

/// What an archive holds, entry by entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file of that many bytes, and whether it may be executed.
    File { size: u64, executable: bool },
    /// A directory.
    Directory,
    /// A symbolic link, and what it points to.
    Link(Vec<u8>),
    /// Another name of the file at that path, which came before.
    Same(Vec<u8>),
}

/// Takes the entries of an archive: path, kind, and what reads the content of a file.
type Taker<'a> = dyn FnMut(&[u8], Kind, &mut dyn Read) -> Result<(), Fault> + 'a;

/// How many bytes may be read out of a package of `size` bytes.
pub(crate) fn most_bytes(size: u64) -> u64 {
    size.saturating_mul(MOST_GROWTH).saturating_add(SLACK)
}

/// Unpacks the files of the package at `path`, which is `.deb` or `.rpm` by its content, a part of
/// `what`, into `tree`, without `left_out` (paths that begin with `./`, in which `*` is one part),
/// and returns what it says about itself. The files belong to whoever runs this, and nothing of the
/// package is run.
///
/// # Errors
/// [`Error::Package`] for a file that cannot be read, is no package, is damaged, or holds something that does not belong below `directory`; [`Error::DiskFull`] where
/// the disk fills up; [`Error::Io`] where nothing can be written.
pub(crate) fn unpack(path: &Path, tree: &UntrustedTree, left_out: &[&str], what: &str) -> Result<About> {
    let mut size = 0;
    let mut taken = || -> Result<About, Fault> {
        let mut into = Directory::of(tree);
        let mut entries = 0;
        let mut take = |path: &[u8], kind: Kind, content: &mut dyn Read| {
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

/// Whether `place` is `left_out` or below it.
fn is_below(place: &Path, left_out: &str) -> bool {
    let mut parts = place.iter();
    let mut wanted = left_out.split('/').filter(|part| !matches!(*part, "" | "."));
    wanted.all(|wanted| parts.next().is_some_and(|part| wanted == "*" || part == wanted))
}

/// What the package at `path` says about itself. Nothing is unpacked, but an RPM package whose
/// payload has another digest than its header names is not found out.
///
/// # Errors
/// [`Error::Package`] for a file that cannot be read, or is no package.
pub fn about(path: &Path) -> Result<About> {
    let mut size = 0;
    let mut read = || -> Result<About, Fault> {
        let mut reader = opened(path, &mut size)?;
        match Form::of(&mut reader)? {
            Form::Deb => deb::about(&mut reader, most_bytes(size)),
            Form::Rpm => rpm::Header::read(&mut reader).map(|header| header.about),
        }
    };
    read().map_err(|fault| failed(fault, path, path, size, "a package"))
}

/// Whether the file at `path` begins as a package does.
#[must_use]
pub fn is_package(path: &Path) -> bool {
    bpfassay_input::open(path).is_ok_and(|file| Form::of(&mut BufReader::new(file)).is_ok())
}

fn opened(path: &Path, size: &mut u64) -> Result<BufReader<File>, Fault> {
    let file = bpfassay_input::open(path).map_err(|source| Fault::Place("open", path.to_owned(), source))?;
    *size = file.metadata()?.len();
    Ok(BufReader::with_capacity(1 << 18, file))
}

fn read(path: &Path, size: &mut u64, take: &mut Taker<'_>) -> Result<About, Fault> {
    let mut reader = opened(path, size)?;
    match Form::of(&mut reader)? {
        Form::Deb => deb::read(&mut reader, most_bytes(*size), take),
        Form::Rpm => rpm::read(reader, most_bytes(*size), take),
    }
}

/// What kind of package a file is.
enum Form {
    Deb,
    Rpm,
}

impl Form {
    /// By how `reader` begins, which is then at its beginning again.
    fn of(reader: &mut (impl Read + io::Seek)) -> Result<Self, Fault> {
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

/// The path of an entry, relative to the root; `None` for the root itself.
fn place_of(path: &[u8]) -> Result<Option<PathBuf>, Fault> {
    let text = str::from_utf8(path).map_err(|_| Fault::Package("the name of an entry is not UTF-8".to_owned()))?;
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

fn failed(fault: Fault, package: &Path, directory: &Path, size: u64, what: &str) -> Error {
    match fault {
        Fault::Package(problem) => PackageError::Content { path: package.to_owned(), problem }.into(),
        Fault::Place("open", path, source) if path == package => PackageError::Open { path, source }.into(),
        Fault::Place(_, _, source)
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
        {
            let free = free_space(directory).unwrap_or(0);
            let (what, path) = (what.to_owned(), directory.to_owned());
            Error::DiskFull { what, path, needed: size.saturating_mul(GROWTH), free }
        }
        Fault::Place(action, path, source) => Error::Io { action, path, source },
    }
}

/// For fuzz targets: the entries of a package in memory, and whether all of it could be read.
pub(crate) fn entries(bytes: &[u8], limit: u64) -> (Vec<(PathBuf, u64)>, bool) {
    let mut found = Vec::new();
    let mut take = |path: &[u8], _: Kind, content: &mut dyn Read| {
        let Some(place) = place_of(path)? else { return Ok(()) };
        found.push((place, io::copy(content, &mut io::sink())?));
        Ok(())
    };
    let mut reader = io::Cursor::new(bytes);
    let read = Form::of(&mut reader).and_then(|form| match form {
        Form::Deb => deb::read(&mut reader, limit, &mut take),
        Form::Rpm => rpm::read(reader, limit, &mut take),
    });
    let is_whole = read.is_ok();
    (found, is_whole)
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of package files, downloads and the cache, each with advice.

pub mod apt_failure;
pub mod package_error;

use std::{io, path::PathBuf, process::ExitStatus};

use self::{apt_failure::AptError, package_error::PackageError};
use crate::digest::Digest;

/// The result of fetching, keeping or unpacking packages.
pub type Result<T, E = PackagesError> = std::result::Result<T, E>;

/// Why packages could not be fetched, kept or unpacked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackagesError {
    /// The operating system refused an operation on a file.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The failed operation, as a verb ("read", "create").
        action: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A file system does not have enough space.
    #[error(
        "no space left for {what} in {}: about {} needed, {} free; make room there, or name another \
         directory with --cache or XDG_CACHE_HOME",
        path.display(), human(*needed), human(*free)
    )]
    DiskFull {
        /// A description of what should be written.
        what: String,
        /// A path in the file system.
        path: PathBuf,
        /// How many bytes are needed, at least.
        needed: u64,
        /// How many bytes are free in the file system.
        free: u64,
    },
    /// Something has other content than promised.
    #[error("{what} has SHA-256 {found}, expected {expected}: {remedy}")]
    Mismatch {
        /// The checked file or package.
        what: String,
        /// The promised hash.
        expected: Digest,
        /// The hash of the content.
        found: Digest,
        /// Advice for the user.
        remedy: &'static str,
    },
    /// A damaged file in the cache that could not be removed.
    #[error("{} in the cache is damaged and cannot be removed; remove it by hand and run again", path.display())]
    Damaged {
        /// The damaged file or directory.
        path: PathBuf,
        /// Why it could not be removed.
        #[source]
        source: io::Error,
    },
    /// Something is needed that the cache lacks, and the network may not be used.
    #[error(
        "{what} is not in the cache, and the network may not be used (--offline): run `bpfassay testbed fetch` first"
    )]
    Offline {
        /// The missing part.
        what: String,
    },
    /// None of the places that were asked has the package files.
    #[error(
        "no place has {what} ({asked}): name one that has it with --from or --archive, or take the newest in place of what testbed.lock has with --newest"
    )]
    Nowhere {
        /// The missing part.
        what: String,
        /// The places and their answers.
        asked: String,
        /// Whether the newest version can be used: the mirror dropped it, and no archive was named.
        replaceable: bool,
    },
    /// Nothing can be removed from the cache while another process uses it.
    #[error("another bpfassay uses the cache {}: wait until it has ended", path.display())]
    CacheInUse {
        /// Path of the cache.
        path: PathBuf,
    },
    /// A directory that is not a cache and cannot become a cache.
    #[error(
        "{} cannot be the cache: {problem}; name a directory that is missing or empty, or a cache, with --cache or XDG_CACHE_HOME",
        path.display()
    )]
    NotACache {
        /// Path of the directory.
        path: PathBuf,
        /// The fault.
        problem: String,
    },
    /// A read-only cache lacks something.
    #[error(
        "{what} is not in the cache {}, and this user may not write to it: have its owner run `bpfassay testbed fetch` for the same \
         study, or name another cache with --cache",
        path.display()
    )]
    ReadOnly {
        /// The missing part.
        what: String,
        /// Path of the cache.
        path: PathBuf,
    },
    /// Neither a cache directory nor a home directory is known.
    #[error("no cache directory: neither XDG_CACHE_HOME nor HOME is set; name one with --cache")]
    NoCacheDirectory,
    /// A program could not be started.
    #[error("cannot start `{program}`: install the Debian package `{package}`{}", instead_of(package))]
    Program {
        /// Name of the program.
        program: String,
        /// The Debian package that contains it.
        package: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A program failed.
    #[error("`{command}` failed while {purpose} ({status}): {stderr}")]
    Command {
        /// Name of the program.
        command: String,
        /// The purpose of the command, such as "reading a package index".
        purpose: String,
        /// Exit code or signal.
        status: ExitStatus,
        /// The last lines that it wrote to standard error.
        stderr: String,
    },
    /// Downloading from package archives failed.
    #[error(transparent)]
    Apt(#[from] AptError),
    /// A package file cannot be used.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A file cannot be downloaded.
    #[error(
        "cannot download {url} ({detail}): check the URL, the network and the proxies and certificates of the host"
    )]
    Download {
        /// The URL that was requested.
        url: String,
        /// The reason.
        detail: String,
    },
}

impl PackagesError {
    /// Returns why a locked file is not available, if the newest version can be used instead.
    #[must_use]
    pub fn dropped(&self) -> Option<&str> {
        match self {
            Self::Apt(AptError::Missing { detail, .. }) => Some(detail),
            Self::Nowhere { asked, replaceable: true, .. } => Some(asked),
            _ => None,
        }
    }

    /// Creates a [`PackagesError::Io`], for use in `map_err`.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// Returns the end of a message: an alternative to installing the Debian package.
fn instead_of(package: &str) -> &'static str {
    if package == "apt" { ", or name a place that has the package files with --from" } else { "" }
}

/// Formats a number of bytes in decimal units, for messages.
#[must_use]
pub fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} GB")
}

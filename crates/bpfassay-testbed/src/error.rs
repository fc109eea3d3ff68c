// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of preparing a testbed, each with advice.

pub mod apt_failure;
pub mod catalogue_error;
pub mod unusable_file;

use std::{io, path::PathBuf, process::ExitStatus};

use bpfassay_protocol::Arch;
use bpfassay_stage::StageError;

use self::{
    apt_failure::AptError,
    catalogue_error::CatalogueError,
    unusable_file::{AssetError, BundleError, ManifestError, PackageError, SpecError},
};
use crate::{
    digest::Digest,
    initramfs::{ArchiveError, initramfs_tree::OverlayError},
    kernel_modules::ModulesError,
};

/// The result of preparing a part of a testbed.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a testbed could not be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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
    /// Unpacked packages lack a file that a kernel needs.
    #[error("{what} holds no {missing}: the package layout has changed; report it with the kernel's name")]
    KernelLayout {
        /// The packages that were unpacked.
        what: String,
        /// The missing file.
        missing: String,
    },
    /// A kernel of the catalogue or of a testbed spec that cannot be booted.
    #[error("the kernel {name} for {arch} cannot be booted: {problem} ({}); name another build of it, or another kernel", path.display())]
    DamagedKernel {
        /// Name of the kernel.
        name: String,
        /// Architecture of the kernel.
        arch: Arch,
        /// Path of the image.
        path: PathBuf,
        /// The fault of the image.
        problem: String,
    },
    /// A kernel image given by the user cannot be used.
    #[error("{} {problem}", path.display())]
    LocalKernel {
        /// The file or directory given.
        path: PathBuf,
        /// The fault, and the expected content.
        problem: String,
    },
    /// The file given as a kernel image is not a kernel image, or is damaged.
    #[error("{} {problem}", path.display())]
    UnusableImage {
        /// Path of the file.
        path: PathBuf,
        /// The fault, and the expected content.
        problem: String,
    },
    /// The build tree of a user's kernel lacks a build product.
    #[error("the build tree {} {problem}", tree.display())]
    NotBuilt {
        /// Path of the build tree.
        tree: PathBuf,
        /// The missing file, and the make target that builds it.
        problem: String,
    },
    /// Downloading from package archives failed.
    #[error(transparent)]
    Apt(#[from] AptError),
    /// A package file cannot be used.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A kernel name or a catalogue is refused.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// A testbed manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A bundle of guests cannot be used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A testbed spec cannot be used.
    #[error(transparent)]
    TestbedSpec(#[from] SpecError),
    /// An initramfs archive cannot be read or written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A user's directory tree cannot be put into guests.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    /// The files of a tool under test cannot be put into guests.
    #[error("cannot put the tool {tool} into guests: {problem}")]
    Tool {
        /// Name of the tool.
        tool: String,
        /// The obstacle.
        problem: String,
    },
    /// A tool file cannot be used, or a file next to it.
    #[error(transparent)]
    ToolFile(#[from] bpfassay_tool::ToolError),
    /// The source of the guest's programs cannot be used.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// Assets, the prebuilt programs of guests, cannot be used.
    #[error(transparent)]
    Asset(#[from] AssetError),
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
    /// Kernel modules cannot be used.
    #[error(transparent)]
    Modules(#[from] ModulesError),
    /// A modules segment lacks a usable list of its modules.
    #[error("{} holds no usable list of kernel modules: make the testbed again", path.display())]
    ModuleSet {
        /// Path of the segment.
        path: PathBuf,
        /// The position and the problem.
        #[source]
        source: serde_json::Error,
    },
    /// A segment has other content than the manifest says.
    #[error("the initramfs segment {} is damaged: it has SHA-256 {found}, expected {expected}; `bpfassay testbed fetch --verify` finds and replaces what is damaged in the cache", path.display())]
    Segment {
        /// Path of the segment.
        path: PathBuf,
        /// The digest in the manifest.
        expected: Digest,
        /// The digest of the file.
        found: Digest,
    },
    /// Preparing the toolchain, or building or finding a guest's program, failed.
    #[error("{what}")]
    Build {
        /// The failed step, and the remedy.
        what: String,
    },
}

impl Error {
    /// Returns why a locked file is not available, if the newest version can be used instead.
    pub(crate) fn dropped(&self) -> Option<&str> {
        match self {
            Self::Apt(AptError::Missing { detail, .. }) => Some(detail),
            Self::Nowhere { asked, replaceable: true, .. } => Some(asked),
            _ => None,
        }
    }

    /// Creates an [`Error::Io`], for use in `map_err`.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of making a testbed, and what to do about each.

use std::{io, path::PathBuf, process::ExitStatus};

use bpfassay_protocol::Arch;

use crate::{
    apt::AptError,
    bundle::BundleError,
    cache::Digest,
    catalogue::CatalogueError,
    compose::SpecError,
    initramfs::{ArchiveError, tree::OverlayError},
    manifest::ManifestError,
    modules::ModulesError,
    payload::{AssetError, StageError},
    unpack::PackageError,
};

/// The result of everything that prepares a testbed.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a testbed could not be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a file.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was to be done, as a verb ("read", "create").
        action: &'static str,
        /// The file concerned.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The disk that holds the cache is full.
    #[error(
        "no space left for {what} in {}: about {} needed, {} free; make room there, or name another \
         directory with --cache or XDG_CACHE_HOME",
        path.display(), human(*needed), human(*free)
    )]
    DiskFull {
        /// What was to be written.
        what: String,
        /// Where.
        path: PathBuf,
        /// How many bytes it takes, as far as known: at least this many.
        needed: u64,
        /// How many bytes are free there.
        free: u64,
    },
    /// Something has another content than promised.
    #[error("{what} has SHA-256 {found}, expected {expected}: {remedy}")]
    Mismatch {
        /// What was checked.
        what: String,
        /// The hash that was promised.
        expected: Digest,
        /// The hash found.
        found: Digest,
        /// What to do.
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
        /// What is missing.
        what: String,
    },
    /// No place that was asked has the files of packages.
    #[error(
        "no place has {what} ({asked}): name one that has it with --from or --archive, or take the newest in place of what testbed.lock has with --newest"
    )]
    Nowhere {
        /// What is missing.
        what: String,
        /// The places, with what each answered.
        asked: String,
        /// Whether the newest may take its place: the mirror dropped it, and no archive was named.
        replaceable: bool,
    },
    /// Nothing may be removed from the cache while another process uses it.
    #[error("another bpfassay uses the cache {}: wait until it has ended", path.display())]
    CacheInUse {
        /// The cache.
        path: PathBuf,
    },
    /// A directory that is no cache, and cannot be made one.
    #[error(
        "{} cannot be the cache: {problem}; name a directory that is missing or empty, or a cache, with --cache or XDG_CACHE_HOME",
        path.display()
    )]
    NotACache {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Something that is needed is not in a cache that may only be read.
    #[error(
        "{what} is not in the cache {}, and this user may not write to it: have its owner run `bpfassay testbed fetch` for the same \
         study, or name another cache with --cache",
        path.display()
    )]
    ReadOnly {
        /// What is missing.
        what: String,
        /// The cache.
        path: PathBuf,
    },
    /// Neither a cache directory nor a home directory is known.
    #[error("no cache directory: neither XDG_CACHE_HOME nor HOME is set; name one with --cache")]
    NoCacheDirectory,
    /// A program could not be started.
    #[error("cannot start `{program}`: install the Debian package `{package}`{}", instead_of(package))]
    Program {
        /// The program.
        program: String,
        /// The Debian package that holds it.
        package: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A program failed.
    #[error("`{command}` failed while {purpose} ({status}): {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// What it was run for.
        purpose: String,
        /// How it ended.
        status: ExitStatus,
        /// The last lines that it wrote to standard error.
        stderr: String,
    },
    /// Unpacked packages do not hold what a kernel needs.
    #[error("{what} holds no {missing}: the package layout has changed; report it with the kernel's name")]
    KernelLayout {
        /// The packages.
        what: String,
        /// What was looked for.
        missing: String,
    },
    /// A kernel of the catalogue, or of a testbed's spec, that nothing can boot.
    #[error("the kernel {name} for {arch} cannot be booted: {problem} ({}); name another build of it, or another kernel", path.display())]
    DamagedKernel {
        /// Its name.
        name: String,
        /// Its architecture.
        arch: Arch,
        /// Its image.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A kernel image given by the user cannot be used.
    #[error("{} {problem}", path.display())]
    LocalKernel {
        /// The file or directory given.
        path: PathBuf,
        /// What is wrong with it and what is wanted.
        problem: String,
    },
    /// The file given as a kernel image is none, or is damaged.
    #[error("{} {problem}", path.display())]
    UnusableImage {
        /// The file.
        path: PathBuf,
        /// What is wrong with it and what is wanted.
        problem: String,
    },
    /// The tree that a kernel of the user's is built in lacks what a build makes.
    #[error("the build tree {} {problem}", tree.display())]
    NotBuilt {
        /// The tree.
        tree: PathBuf,
        /// What is missing, and which make target makes it.
        problem: String,
    },
    /// Package archives.
    #[error(transparent)]
    Apt(#[from] AptError),
    /// Package files.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// Kernel names.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// Testbed manifests.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Bundles of guests.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// Specs of testbeds.
    #[error(transparent)]
    TestbedSpec(#[from] SpecError),
    /// Initramfs archives.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A user's directory tree for the guest.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    /// What a tool under test needs cannot be put into guests.
    #[error("cannot put the tool {tool} into guests: {problem}")]
    Tool {
        /// The tool.
        tool: String,
        /// Why.
        problem: String,
    },
    /// A tool file, or a file beside it.
    #[error(transparent)]
    ToolFile(#[from] bpfassay_tool::ToolError),
    /// The source of the guest's programs.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// Assets: the guest's programs, built elsewhere.
    #[error(transparent)]
    Asset(#[from] AssetError),
    /// A file cannot be downloaded.
    #[error(
        "cannot download {url} ({detail}): check the URL, the network and the proxies and certificates of the host"
    )]
    Download {
        /// Where it is.
        url: String,
        /// Why not.
        detail: String,
    },
    /// Kernel modules.
    #[error(transparent)]
    Modules(#[from] ModulesError),
    /// A modules segment without a list of its modules.
    #[error("{} holds no usable list of kernel modules: make the testbed again", path.display())]
    ModuleSet {
        /// The segment.
        path: PathBuf,
        /// What is wrong with the list.
        #[source]
        source: serde_json::Error,
    },
    /// A segment that has another content than the manifest promises.
    #[error("the initramfs segment {} is damaged: it has SHA-256 {found}, expected {expected}; `bpfassay testbed fetch --verify` finds and replaces what is damaged in the cache", path.display())]
    Segment {
        /// The segment.
        path: PathBuf,
        /// The digest in the manifest.
        expected: Digest,
        /// The digest found.
        found: Digest,
    },
    /// The cross-toolchain.
    #[error("{what}")]
    Build {
        /// What failed, on what, and what to do next.
        what: String,
    },
}

impl Error {
    /// Why a locked file cannot be had, where the newest may take its place.
    pub(crate) fn dropped(&self) -> Option<&str> {
        match self {
            Self::Apt(AptError::Missing { detail, .. }) => Some(detail),
            Self::Nowhere { asked, replaceable: true, .. } => Some(asked),
            _ => None,
        }
    }

    /// An [`Error::Io`]; for use in `map_err`.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// What takes the place of a Debian package, as the end of a message.
fn instead_of(package: &str) -> &'static str {
    if package == "apt" { ", or name a place that has the package files with --from" } else { "" }
}

/// Bytes as people write them, for messages, in decimal units.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of preparing a testbed, each with advice.

pub mod catalogue_error;
pub mod unusable_file;

use std::{io, path::PathBuf};

use bpfassay_packages::{digest::Digest, error::PackagesError};
use bpfassay_protocol::Arch;
use bpfassay_stage::StageError;

use self::{
    catalogue_error::CatalogueError,
    unusable_file::{AssetError, BundleError, ManifestError, SpecError},
};
use crate::{
    initramfs::{ArchiveError, initramfs_tree::OverlayError},
    kernel_modules::ModulesError,
};

/// The result of preparing a part of a testbed.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a testbed could not be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Packages could not be fetched, kept or unpacked, or the system refused an operation on a
    /// file.
    #[error(transparent)]
    Packages(#[from] PackagesError),
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
            Self::Packages(error) => error.dropped(),
            _ => None,
        }
    }

    /// Creates an error of an operation on a file, for use in `map_err`.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let failed = PackagesError::io(action, path);
        |source| failed(source).into()
    }
}

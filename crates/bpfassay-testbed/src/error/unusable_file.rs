// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why files cannot be used that this crate reads: manifests, specs, bundles and assets.

use std::{io, path::PathBuf};

/// Format version of manifests.
pub(crate) const MANIFEST_FORMAT: u32 = 1;

/// Format version of specs.
pub(crate) const SPEC_FORMAT: u32 = 1;

/// Format version of an asset's index.
pub(crate) const ASSET_FORMAT: u32 = 1;

/// Advice for the user if an asset is damaged.
pub(crate) const ASSET_REMEDY: &str =
    "the place that --from names is damaged or tampered with; get its files again, or leave it out";

/// The reason why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The manifest cannot be read.
    #[error("cannot read the testbed manifest {}: check that it exists, is a regular file, and may be read", path.display())]
    Read {
        /// The manifest.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The manifest is not JSON, or has another structure.
    #[error("{} is no testbed manifest of format {MANIFEST_FORMAT}: make it again with this version of bpfassay", path.display())]
    Form {
        /// The manifest.
        path: PathBuf,
        /// Place and cause.
        #[source]
        source: serde_json::Error,
    },
    /// The manifest has another format version.
    #[error("{} has format {found}, this program reads {MANIFEST_FORMAT}: make it again with this version of bpfassay", path.display())]
    Format {
        /// The manifest.
        path: PathBuf,
        /// The format version found.
        found: u64,
    },
    /// The manifest contradicts itself.
    #[error("{}: {problem}", path.display())]
    Content {
        /// The manifest.
        path: PathBuf,
        /// The contradiction.
        problem: String,
    },
    /// A file that the manifest names is missing or has another content.
    #[error("{} names {}, which {problem}: make the testbed again (`bpfassay testbed fetch --verify --manifest-out FILE`)", manifest.display(), file.display())]
    File {
        /// The manifest.
        manifest: PathBuf,
        /// The missing or changed file.
        file: PathBuf,
        /// The problem of the file.
        problem: String,
    },
}

/// Why a spec cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The spec cannot be read.
    #[error("cannot read the testbed spec {}: check that it exists, is a regular file, and may be read", path.display())]
    Read {
        /// Path of the spec.
        path: PathBuf,
        /// The error of reading it.
        #[source]
        source: io::Error,
    },
    /// The spec is not JSON, or does not have the expected form.
    #[error("{} is no spec of format {SPEC_FORMAT} for a testbed: make it again with the flake of this version", path.display())]
    Form {
        /// Path of the spec.
        path: PathBuf,
        /// The position and the problem.
        #[source]
        source: serde_json::Error,
    },
    /// The spec contradicts itself.
    #[error("{}: {problem}", path.display())]
    Content {
        /// Path of the spec.
        path: PathBuf,
        /// The fault.
        problem: String,
    },
}

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The bundle cannot be opened.
    #[error("cannot read the bundle {}: check that it exists, is a regular file, and may be read", path.display())]
    Open {
        /// The path of the bundle.
        path: PathBuf,
        /// The error of opening it.
        #[source]
        source: io::Error,
    },
    /// The file is cut off, or is not an xz stream of an archive.
    #[error("{} is no bundle, or is damaged: make it again with `bpfassay testbed bundle`, or copy it again", path.display())]
    Damaged {
        /// The path of the bundle.
        path: PathBuf,
        /// The position and the problem.
        #[source]
        source: io::Error,
    },
    /// The archive's content does not belong in a bundle.
    #[error("{} is no bundle, or is damaged: {problem}; make it again with `bpfassay testbed bundle`, or copy it again", path.display())]
    Content {
        /// The path of the bundle.
        path: PathBuf,
        /// The fault.
        problem: String,
    },
}

/// Why an asset cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssetError {
    /// The index is not JSON, or has another structure.
    #[error(
        "{file} is no index of guest programs of format {ASSET_FORMAT}: make it again with `bpfassay testbed payload pack`"
    )]
    Form {
        /// The index.
        file: String,
        /// Place and cause.
        #[source]
        source: serde_json::Error,
    },
    /// A file contradicts the index or itself.
    #[error("{file} {problem}: {ASSET_REMEDY}")]
    Content {
        /// Path or URL of the file.
        file: String,
        /// The problem of the file.
        problem: String,
    },
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a package file cannot be used.

use std::{io, path::PathBuf};

/// Why a package cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// The package cannot be opened or read.
    #[error("cannot read the package {}: check that it exists, is a regular file, and may be read", path.display())]
    Open {
        /// The package file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is not a package, or contains something that is not allowed.
    #[error("{} is no package that can be unpacked (.deb or .rpm), or is damaged: {problem}; download or copy it again", path.display())]
    Content {
        /// The package file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
}

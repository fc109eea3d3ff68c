// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of tool files.

use std::{io, path::PathBuf};

use bpfassay_btf::object_contents::ContentsError;
use bpfassay_input::document::Invalid;

use crate::readings::ReadingsError;

/// Why a tool file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The name is neither a bundled tool nor a file.
    #[error("no tool `{name}`{nearest}; `bpfassay list tools` lists the bundled tools; for a file, give its path")]
    Unknown {
        /// The name that was given.
        name: String,
        /// A suggestion that begins with `; `, or nothing.
        nearest: String,
    },
    /// The tool file cannot be read.
    #[error("cannot read the tool file {}: check that it exists, is what it should be, and may be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file is a tool, such as an eBPF object or a program, and no tool file.
    #[error("{} is an ELF file and no tool file: write one by `bpfassay tool init {}`", path.display(), path.display())]
    IsTool {
        /// The file.
        path: PathBuf,
    },
    /// A file that the tool file names cannot be read.
    #[error("cannot read {}, which {name} names: check that it exists, is what it should be, and may be read", path.display())]
    Part {
        /// Name of the tool, or path of a workload's program in the guest.
        name: String,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A tool file without a directory (bundled, or from results) names a file.
    #[error(
        "{name} names the file {path}, and a bundled or resumed tool file has no files beside it: give the path of its file"
    )]
    Alone {
        /// Name of the tool or workload.
        name: String,
        /// The file that it names.
        path: String,
    },
    /// The object or bpftrace script lacks figures of the tool file.
    #[error("{name} reports what {} does not have", path.display())]
    Figures {
        /// Name of the tool.
        name: String,
        /// The object or script.
        path: PathBuf,
        /// The missing part.
        #[source]
        source: Box<ReadingsError>,
    },
    /// The object lacks contents that the tool file sets, or they cannot be set.
    #[error("{name} sets what the object {} cannot hold", path.display())]
    Contents {
        /// Name of the tool.
        name: String,
        /// The object.
        path: PathBuf,
        /// The fault.
        #[source]
        source: Box<ContentsError>,
    },
    /// The tool file has an error.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl ToolError {
    /// The invalid file, if that is the error.
    #[must_use]
    pub const fn invalid(&self) -> Option<&Invalid> {
        match self {
            Self::Invalid(invalid) => Some(invalid),
            _ => None,
        }
    }

    /// Creates [`ToolError::Read`] in `map_err`.
    pub(crate) fn read(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Read { path, source }
    }
}

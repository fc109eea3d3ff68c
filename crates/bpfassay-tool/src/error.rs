// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of tool files.

use std::{io, path::PathBuf};

use bpfassay_btf::contents::ContentsError;
use bpfassay_input::document::Invalid;

use crate::ReadError;

/// Why a tool file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// Neither a bundled tool nor a file.
    #[error("no tool `{name}`: bundled tools are {bundled}{nearest}; for a file, give its path")]
    Unknown {
        /// The name as given.
        name: String,
        /// The bundled names, comma-separated.
        bundled: String,
        /// Empty, or a suggestion that begins with `; `.
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
    /// A file that the tool file names cannot be read.
    #[error("cannot read {}, which {name} names: check that it exists, is what it should be, and may be read", path.display())]
    Part {
        /// The tool, or the place of a workload's program.
        name: String,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// What is bundled, or comes from results, names a file.
    #[error(
        "{name} names the file {path}, and a bundled or resumed tool file has no files beside it: give the path of its file"
    )]
    Alone {
        /// The tool or workload.
        name: String,
        /// The file.
        path: String,
    },
    /// The figures of the tool file are not in its object, or not in its bpftrace script.
    #[error("{name} reports what {} does not have", path.display())]
    Figures {
        /// The tool.
        name: String,
        /// The object or script.
        path: PathBuf,
        /// What is missing.
        #[source]
        source: Box<ReadError>,
    },
    /// What the tool file sets is not in its object, or cannot be set.
    #[error("{name} sets what the object {} cannot hold", path.display())]
    Contents {
        /// The tool.
        name: String,
        /// The object.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: Box<ContentsError>,
    },
    /// Something in the file is wrong.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl ToolError {
    /// The file that is not valid, if that is the error.
    #[must_use]
    pub const fn invalid(&self) -> Option<&Invalid> {
        match self {
            Self::Invalid(invalid) => Some(invalid),
            _ => None,
        }
    }

    /// A [`ToolError::Read`]; for use in `map_err`.
    pub(crate) fn read(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Read { path, source }
    }
}

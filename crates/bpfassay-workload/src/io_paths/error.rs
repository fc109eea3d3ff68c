// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the workload can fail, as opposed to a path that is not to be had.

use std::{io, path::PathBuf};

use bpfassay_protocol::IoPath;

use crate::engine::EngineError;

/// Why the workload stopped.
#[derive(Debug, thiserror::Error)]
pub enum PathsError {
    /// The size is none that the paths can move.
    #[error("cannot move {size} bytes by each path: give a multiple of 4096 from 4096 to {}", super::MAX_SIZE)]
    Size {
        /// As given.
        size: u64,
    },
    /// Files could not be made ready, looked at, or removed.
    #[error("{path}: cannot {action} {}", file.display())]
    File {
        /// The path that they are for.
        path: IoPath,
        /// What was tried.
        action: &'static str,
        /// With which file.
        file: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The data are not those that were written.
    #[error("{path}: wrong data at offset {at} of {size} bytes")]
    Data {
        /// The path.
        path: IoPath,
        /// The first wrong byte.
        at: u64,
        /// Bytes of the path.
        size: u64,
    },
    /// Calls returned what they must not.
    #[error("{path}: {call} {problem}")]
    Call {
        /// The path.
        path: IoPath,
        /// The call.
        call: &'static str,
        /// What it did, as a predicate.
        problem: String,
    },
    /// The control channel is not what it should be.
    #[error(transparent)]
    Control(#[from] EngineError),
    /// The summary could not be written.
    #[error("cannot write the summary to {}", file.display())]
    Summary {
        /// The file.
        file: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the workload. A path that the kernel refuses is not an error.

use std::{io, path::PathBuf};

use bpfassay_protocol::IoPath;

use crate::engine::EngineError;

/// Why the workload stopped.
#[derive(Debug, thiserror::Error)]
pub enum PathsError {
    /// The paths cannot move this size.
    #[error("cannot move {size} bytes by each path: give a multiple of 4096 from 4096 to {}", super::MAX_SIZE)]
    Size {
        /// The given size, in bytes.
        size: u64,
    },
    /// Files cannot be prepared, examined or removed.
    #[error("{path}: cannot {action} {}", file.display())]
    File {
        /// The I/O path that needs the file.
        path: IoPath,
        /// The attempted operation, as a verb.
        action: &'static str,
        /// Path of the file.
        file: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The data differ from those that were written.
    #[error("{path}: wrong data at offset {at} of {size} bytes")]
    Data {
        /// The I/O path.
        path: IoPath,
        /// Offset of the first wrong byte.
        at: u64,
        /// Size of the path's data, in bytes.
        size: u64,
    },
    /// A call returned an impossible result.
    #[error("{path}: {call} {problem}")]
    Call {
        /// The I/O path.
        path: IoPath,
        /// Name of the call.
        call: &'static str,
        /// A predicate of the call.
        problem: String,
    },
    /// The control channel does not work as expected.
    #[error(transparent)]
    Control(#[from] EngineError),
    /// The summary cannot be written.
    #[error("cannot write the summary to {}", file.display())]
    Summary {
        /// Path of the summary.
        file: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

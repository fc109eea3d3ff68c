// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the engine, and the exit status for each.

use std::io;

use bpfassay_ior::OptionsError;

/// Why the engine stopped.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The options are wrong.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The engine has no such interface.
    #[error("the embedded engine has no {api} interface, only POSIX and MMAP: use a real IOR for it")]
    Api {
        /// Name of the requested interface.
        api: &'static str,
    },
    /// A file that the engine needs cannot be read or written.
    #[error("cannot {action} `{path}`")]
    File {
        /// The attempted operation, as a verb.
        action: &'static str,
        /// Path of the file.
        path: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A system call on a test file failed.
    #[error("rank {rank}: {call} on test file `{path}` failed")]
    Call {
        /// The rank that made the call.
        rank: u32,
        /// Name of the call.
        call: &'static str,
        /// Path of the test file.
        path: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A transfer did not move all of its bytes.
    #[error(
        "rank {rank}: {call} moved {moved} of {length} bytes at offset {offset} of test file `{path}`: is the file complete and the file system large enough?"
    )]
    Partial {
        /// The rank that made the transfer.
        rank: u32,
        /// Name of the call.
        call: &'static str,
        /// Path of the test file.
        path: String,
        /// Offset in the file at which the transfer began, in bytes.
        offset: u64,
        /// Bytes that were transferred.
        moved: u64,
        /// Bytes that should have been transferred.
        length: u64,
    },
    /// The test file does not allow the test.
    #[error("rank {rank}: {what}")]
    Test {
        /// The rank that found the problem.
        rank: u32,
        /// The problem, and what to do about it.
        what: String,
    },
    /// The control channel does not work as expected.
    #[error("control channel (BPFASSAY_CONTROL): {what}")]
    Control {
        /// The failed operation, or what was expected.
        what: String,
        /// The kernel's error, if a call failed.
        #[source]
        source: Option<io::Error>,
    },
    /// The ranks cannot be set up.
    #[error("cannot {action} for {ranks} ranks")]
    Ranks {
        /// The attempted operation, as a verb.
        action: &'static str,
        /// Number of ranks.
        ranks: u32,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A signal killed a rank.
    #[error("rank {rank} was killed by signal {signal}{}", if *signal == libc::SIGBUS { ": a mapped test file is shorter than its mapping or the file system is full" } else { "" })]
    Killed {
        /// The killed rank.
        rank: u32,
        /// Number of the signal.
        signal: i32,
    },
    /// Another rank failed and has reported why.
    #[error("stopped because another rank failed")]
    Aborted,
}

impl EngineError {
    /// Returns the exit status of `bpfassay-ior` for this error.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Options(_) => 2,
            Self::Call { .. } | Self::Partial { .. } | Self::Test { .. } => 3,
            Self::Api { .. } => 4,
            Self::File { .. } | Self::Control { .. } | Self::Ranks { .. } | Self::Killed { .. } => 5,
            Self::Aborted => super::ABORTED,
        }
    }
}

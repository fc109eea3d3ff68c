// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a run of the engine can fail, and the exit status for each way.

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
        /// The interface asked for.
        api: &'static str,
    },
    /// A file that the engine needs could not be read or written.
    #[error("cannot {action} `{path}`")]
    File {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A system call on a test file failed.
    #[error("rank {rank}: {call} on test file `{path}` failed")]
    Call {
        /// The rank that made it.
        rank: u32,
        /// The call.
        call: &'static str,
        /// The file.
        path: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A transfer did not move all of its bytes.
    #[error(
        "rank {rank}: {call} moved {moved} of {length} bytes at offset {offset} of test file `{path}`: is the file complete and the file system large enough?"
    )]
    Partial {
        /// The rank that made it.
        rank: u32,
        /// The call.
        call: &'static str,
        /// The file.
        path: String,
        /// Where the transfer began.
        offset: u64,
        /// Bytes moved.
        moved: u64,
        /// Bytes to be moved.
        length: u64,
    },
    /// The test file does not allow the test.
    #[error("rank {rank}: {what}")]
    Test {
        /// The rank concerned.
        rank: u32,
        /// What is wrong and what to do.
        what: String,
    },
    /// The control channel is not what it should be.
    #[error("control channel (BPFASSAY_CONTROL): {what}")]
    Control {
        /// What was tried or expected.
        what: String,
        /// Why it failed, where a call failed.
        #[source]
        source: Option<io::Error>,
    },
    /// Ranks could not be set up.
    #[error("cannot {action} for {ranks} ranks")]
    Ranks {
        /// What was tried.
        action: &'static str,
        /// How many ranks.
        ranks: u32,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A signal killed a rank.
    #[error("rank {rank} was killed by signal {signal}{}", if *signal == libc::SIGBUS { ": a mapped test file is shorter than its mapping or the file system is full" } else { "" })]
    Killed {
        /// The rank.
        rank: u32,
        /// The signal.
        signal: i32,
    },
    /// Another rank failed and has reported why.
    #[error("stopped because another rank failed")]
    Aborted,
}

impl EngineError {
    /// The exit status of `bpfassay-ior` for it.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's errors, and how they are printed.

use std::{io, path::Path};

use bpfassay_protocol::compiler_error::LAST_OUTPUT;

/// An error of the agent: what failed, and on what.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// An operation on a file or directory.
    #[error("cannot {action} {path}")]
    File {
        /// The operation, as a verb ("read").
        action: &'static str,
        path: String,
        source: io::Error,
    },
    /// A system call that concerns no file.
    #[error("cannot {action}")]
    System {
        /// The operation, as a verb with its object.
        action: String,
        source: io::Error,
    },
    /// The job file does not hold a job.
    #[error("{path} does not hold a valid job: it was written by another version of the host side")]
    Job {
        /// Path of the job file.
        path: String,
        source: serde_json::Error,
    },
    /// The job was written for another protocol version.
    #[error("the job has protocol version {theirs}, this agent {ours}: rebuild the guest payload")]
    JobVersion {
        /// Version in the job.
        theirs: u32,
        /// Version of this agent.
        ours: u32,
    },
    /// The port to the host did not appear.
    #[error(
        "no virtio-serial port named {name} appeared within {seconds} s: the kernel has no drivers of it, \
         virtio_pci and virtio_console: name its modules with --modules, or build the drivers in"
    )]
    NoPort {
        name: &'static str,
        /// How long the agent waited.
        seconds: u64,
    },
    /// A message does not fit into a frame.
    #[error("cannot send a message to the host")]
    Frame(#[from] bpfassay_protocol::frame::FrameError),
    /// A file of the kernel does not have the expected contents.
    #[error("{path} does not hold {expected}; found `{found}`")]
    Unexpected {
        path: String,
        expected: String,
        /// The beginning of the contents.
        found: String,
    },
    /// A program could not be started.
    #[error("cannot start {program}")]
    Spawn {
        /// Name or path of the program.
        program: String,
        source: io::Error,
    },
    /// A program did not do what was expected.
    #[error("{program} {problem}{}", quoted(.output))]
    Program {
        program: String,
        /// A predicate of the program ("ended with exit status 1").
        problem: String,
        /// The tail of the program's output.
        output: String,
    },
    /// A job, or a part of it, cannot be executed.
    #[error("{0}")]
    Order(String),
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Returns `; its last output: …`, or nothing if there was no output.
pub(crate) fn quoted(output: &str) -> String {
    let output = output.trim();
    if output.is_empty() { String::new() } else { format!("{LAST_OUTPUT}{output}") }
}

impl Error {
    /// Returns a function for `map_err` on operations on `path`.
    pub(crate) fn file<E: Into<io::Error>>(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(E) -> Self {
        let path = path.as_ref().display().to_string();
        move |source| Self::File { action, path, source: source.into() }
    }

    /// Returns a function for `map_err` on system calls.
    pub(crate) fn system<E: Into<io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::System { action, source: source.into() }
    }

    /// Describes a file with unexpected contents; keeps the beginning of `found`.
    pub(crate) fn unexpected(path: impl AsRef<Path>, expected: impl Into<String>, found: &str) -> Self {
        Self::Unexpected {
            path: path.as_ref().display().to_string(),
            expected: expected.into(),
            found: found.chars().take(120).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::with_causes;

    use super::*;

    #[test]
    fn causes_follow_what_failed() {
        let error = Error::file("read", "/proc/none")(io::Error::from_raw_os_error(2));
        assert_eq!(with_causes(&error), "cannot read /proc/none: No such file or directory (os error 2)");
    }

    #[test]
    fn output_tails_are_quoted_only_where_there_are_some() {
        let mut error =
            Error::Program { program: "ior".into(), problem: "ended with exit status 1".into(), output: "\n".into() };
        assert_eq!(error.to_string(), "ior ended with exit status 1");
        if let Error::Program { output, .. } = &mut error {
            *output = "no space left\n".into();
        }
        assert_eq!(error.to_string(), "ior ended with exit status 1; its last output: no space left");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the catalogue and its lock.

use std::fmt;

use bpfassay_protocol::Arch;

/// Why a catalogue or a kernel's name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// The text is not TOML, or does not have the expected form.
    #[error("{origin}: {problem}")]
    Form {
        /// The name of the catalogue's source.
        origin: String,
        /// The position and the problem.
        problem: String,
    },
    /// No kernel of this name exists for the architecture.
    #[error("unknown kernel `{name}` for {arch}{hint}; known are {}", known.join(", "))]
    UnknownKernel {
        /// The name as the user wrote it.
        name: String,
        /// The architecture.
        arch: Arch,
        /// The most similar name, or where else to find the kernel. Can be empty.
        hint: String,
        /// Every name known for the architecture.
        known: Vec<String>,
    },
    /// The series exists, but today's suites do not have this build, or not for this architecture.
    #[error("kernel {name} for {arch} is not in {suites} today; {}", Builds(builds))]
    NoBuild {
        /// The name as the user wrote it.
        name: String,
        /// The architecture.
        arch: Arch,
        /// The suites that were searched, separated by commas.
        suites: String,
        /// Names of the series' builds that the suites have.
        builds: Vec<String>,
    },
    /// A build lacks a package.
    #[error(
        "kernel {name} for {arch} ({release}) is incomplete: suite {suite} has no package {missing}; choose another build"
    )]
    Incomplete {
        /// The name as the user wrote it.
        name: String,
        /// The architecture.
        arch: Arch,
        /// The release of the build (`uname -r`).
        release: String,
        /// Name of the suite.
        suite: String,
        /// Name of the missing package.
        missing: String,
    },
    /// Neither the lock nor a suite has the headers of a kernel.
    #[error(
        "a tool compiles in the guest, and no suite has headers of the kernel {release} for {arch} today; choose another build"
    )]
    NoHeaders {
        /// The architecture.
        arch: Arch,
        /// The release of the build (`uname -r`).
        release: String,
    },
}

struct Builds<'a>(&'a [String]);

impl fmt::Display for Builds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("no build of its series is; try --refresh"),
            builds => write!(f, "builds of its series are {}", builds.join(", ")),
        }
    }
}

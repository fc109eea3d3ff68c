// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the catalogue, and of the lock that it has.

use std::fmt;

use bpfassay_protocol::Arch;

/// Why a catalogue or a kernel's name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// It is not TOML, or not of the form expected.
    #[error("{origin}: {problem}")]
    Form {
        /// The catalogue.
        origin: String,
        /// Where and why.
        problem: String,
    },
    /// No kernel of this name exists for the architecture.
    #[error("unknown kernel `{name}` for {arch}{hint}; known are {}", known.join(", "))]
    UnknownKernel {
        /// The name given.
        name: String,
        /// The architecture.
        arch: Arch,
        /// The nearest known name, or where else it is to be found; may be empty.
        hint: String,
        /// Every name known for the architecture.
        known: Vec<String>,
    },
    /// The series exists, but not this build, or not for this architecture, in the suites as they
    /// are today.
    #[error("kernel {name} for {arch} is not in {suites} today; {}", Builds(builds))]
    NoBuild {
        /// The name given.
        name: String,
        /// The architecture.
        arch: Arch,
        /// The suites that were searched.
        suites: String,
        /// Names of the builds that are there.
        builds: Vec<String>,
    },
    /// A build lacks a package.
    #[error(
        "kernel {name} for {arch} ({release}) is incomplete: suite {suite} has no package {missing}; choose another build"
    )]
    Incomplete {
        /// The name given.
        name: String,
        /// The architecture.
        arch: Arch,
        /// The build's release.
        release: String,
        /// The suite.
        suite: String,
        /// The package missing.
        missing: String,
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

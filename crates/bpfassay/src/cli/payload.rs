// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `testbed payload`.

use std::path::PathBuf;

use bpfassay_protocol::Arch;
use clap::{Args, Subcommand};

use super::Packages;

/// Arguments of `testbed payload`.
#[derive(Debug, Args)]
pub(crate) struct PayloadArgs {
    #[command(subcommand)]
    pub(crate) command: PayloadCommand,
}

/// The commands for the guest's programs.
#[derive(Debug, Subcommand)]
pub(crate) enum PayloadCommand {
    /// Make sure that the programs are in the cache: fetch them from a place of --from, or build
    /// them
    Build {
        /// Only for these architectures [default: all]
        #[arg(long, value_name = "ARCH", value_delimiter = ',', value_parser = super::arch)]
        arch: Vec<Arch>,

        /// Also write the programs to DIR/ARCH, for the spec of `testbed compose`; files of the
        /// same names are replaced
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,

        #[command(flatten)]
        packages: Packages,
    },
    /// Write the programs as assets for --from: an index and an archive for each architecture,
    /// named by a digest of the sources. Programs that are not in the cache are built first
    Pack {
        /// Directory for the assets; it can hold those of other versions
        #[arg(value_name = "DIR")]
        directory: PathBuf,

        /// Only for these architectures [default: all]
        #[arg(long, value_name = "ARCH", value_delimiter = ',', value_parser = super::arch)]
        arch: Vec<Arch>,

        #[command(flatten)]
        packages: Packages,
    },
    /// Rebuild the programs from scratch, and compare them byte for byte with those of --from, or
    /// of the cache without --from; exit code 7 if one differs
    Verify {
        /// Only for these architectures [default: all]
        #[arg(long, value_name = "ARCH", value_delimiter = ',', value_parser = super::arch)]
        arch: Vec<Arch>,

        #[command(flatten)]
        packages: Packages,
    },
}

impl PayloadCommand {
    /// Returns the options of packages.
    pub(crate) fn packages(&self) -> &Packages {
        match self {
            Self::Build { packages, .. } | Self::Pack { packages, .. } | Self::Verify { packages, .. } => packages,
        }
    }
}

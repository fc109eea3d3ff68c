// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `testbed payload`.

use std::path::PathBuf;

use bpfassay_protocol::Arch;
use clap::{Args, Subcommand};

/// Arguments of `testbed payload`.
#[derive(Debug, Args)]
pub(crate) struct Payload {
    /// What to do with the programs.
    #[command(subcommand)]
    pub(crate) command: PayloadCommand,
}

/// What can be done with the guest's programs.
#[derive(Debug, Subcommand)]
pub(crate) enum PayloadCommand {
    /// Make sure that the programs are in the cache: take them from a place of --from, or build
    /// them
    Build {
        /// Only for these architectures [default: all]
        #[arg(long, value_name = "ARCH", value_delimiter = ',', value_parser = super::arch)]
        arch: Vec<Arch>,

        /// Write the programs to DIR/ARCH, too, for the spec of `testbed compose`; what is there
        /// under their names is replaced
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
    /// Write the programs as assets, which --from takes: an index and an archive for each
    /// architecture, named by a digest of the sources. Programs that are not in the cache are built
    /// first
    Pack {
        /// Directory for the assets; it may hold those of other versions
        #[arg(value_name = "DIR")]
        directory: PathBuf,

        /// Only for these architectures [default: all]
        #[arg(long, value_name = "ARCH", value_delimiter = ',', value_parser = super::arch)]
        arch: Vec<Arch>,
    },
    /// Build the programs again, from nothing, and compare each byte for byte with those that the
    /// places of --from offer, or with those in the cache where there is no --from; exit code 7
    /// where one differs
    Verify {
        /// Only for these architectures [default: all]
        #[arg(long, value_name = "ARCH", value_delimiter = ',', value_parser = super::arch)]
        arch: Vec<Arch>,
    },
}

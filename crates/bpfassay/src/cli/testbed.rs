// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `testbed`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `testbed`.
#[derive(Debug, Args)]
pub(crate) struct Testbed {
    /// What to do with it.
    #[command(subcommand)]
    pub(crate) command: TestbedCommand,
}

/// What can be done with testbeds.
#[derive(Debug, Subcommand)]
pub(crate) enum TestbedCommand {
    /// Compose the guests of a testbed specification (JSON: kernels and programs that were built elsewhere) in a new directory
    Compose {
        /// The testbed specification
        spec: PathBuf,
        /// Directory for the testbed; its manifest is manifest.json there
        #[arg(long, short, value_name = "DIR")]
        output: PathBuf,
    },
    /// Copy a testbed, with all files that its manifest names, into a new directory that can be moved
    Pack {
        /// The manifest
        manifest: PathBuf,
        /// Directory for the testbed; its manifest is manifest.json there
        #[arg(long, short, value_name = "DIR")]
        output: PathBuf,
    },
    /// Check a manifest and the content of every file that it names, or a testbed specification by itself
    Check {
        /// The manifest, or the testbed specification
        file: PathBuf,
        /// The file is a testbed specification; what it names need not exist yet
        #[arg(long)]
        spec: bool,
    },
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `testbed`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{LockArgs, Packages, PayloadArgs, QemuChoice, SelectionArgs, examples};

/// Arguments of `testbed`.
#[derive(Debug, Args)]
#[command(after_help = examples::TESTBED)]
pub(crate) struct TestbedArgs {
    #[command(subcommand)]
    pub(crate) command: TestbedCommand,
}

/// The commands for testbeds.
#[derive(Debug, Subcommand)]
pub(crate) enum TestbedCommand {
    /// Prepare everything that a study needs to run offline
    Fetch(Box<Fetch>),
    /// Show or update testbed.lock: packages of kernels, compilers, QEMU
    Lock(LockArgs),
    /// Write the guests of a run to one file, for `--bundle`
    Bundle(Bundle),
    /// Show what takes space in the cache, or prune it
    Cache(CacheArguments),
    /// Build, pack or verify the guest's programs
    Payload(PayloadArgs),
    /// Compose guests of kernels and programs that were built elsewhere
    ///
    /// A testbed specification in JSON names the kernels and programs. The guests go into a new
    /// directory.
    Compose {
        /// The testbed specification
        spec: PathBuf,
        /// Directory for the testbed and its manifest, manifest.json
        #[arg(long, short, value_name = "DIR")]
        output: PathBuf,
    },
    /// Copy a testbed into a new directory that can be moved
    ///
    /// All files that the manifest names are copied.
    Pack {
        /// The manifest
        manifest: PathBuf,
        /// Directory for the testbed and its manifest, manifest.json
        #[arg(long, short, value_name = "DIR")]
        output: PathBuf,
    },
    /// Check a manifest and its files, or a testbed specification
    Check {
        /// The manifest, or the testbed specification
        file: PathBuf,
        /// The file is a testbed specification; what it names need not exist yet
        #[arg(long)]
        spec: bool,
    },
}

/// Arguments of `testbed fetch`.
#[derive(Debug, Args)]
pub(crate) struct Fetch {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,

    /// Verify the hash of every file in the cache first; damaged files are built again
    #[arg(long)]
    pub(crate) verify: bool,

    /// Write the testbed manifest to this file, for --manifest
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest_out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) qemu: QemuChoice,

    #[command(flatten)]
    pub(crate) packages: Packages,
}

/// Arguments of `testbed bundle`.
#[derive(Debug, Args)]
pub(crate) struct Bundle {
    /// The results directory of the run
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,

    /// The file to write, which must not exist
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Leave QEMU out, which is otherwise included (93 MB) if the run was measured with the version
    /// of testbed.lock
    #[arg(long)]
    pub(crate) without_qemu: bool,

    #[command(flatten)]
    pub(crate) packages: Packages,
}

/// Arguments of `testbed cache`.
#[derive(Debug, Args)]
pub(crate) struct CacheArguments {
    #[command(subcommand)]
    pub(crate) command: Option<CacheCommand>,

    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// The commands of `testbed cache`.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Remove what was not used for long: it is downloaded or built again when needed
    Prune {
        /// Remove what was not used for this many days
        #[arg(long, value_name = "DAYS", default_value_t = 30)]
        unused: u32,
        /// Also remove all Debian packages; their unpacked contents stay
        #[arg(long)]
        packages: bool,
        /// Only print what would be removed
        #[arg(long)]
        dry_run: bool,
    },
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `list`.

use std::path::PathBuf;

use bpfassay_protocol::Arch;
use clap::{Args, Subcommand};

use super::{Packages, examples};

/// Arguments of `list`.
#[derive(Debug, Args)]
#[command(after_help = examples::LIST)]
pub(crate) struct List {
    #[command(subcommand)]
    pub(crate) command: ListCommand,
}

/// The lists.
#[derive(Debug, Subcommand)]
pub(crate) enum ListCommand {
    /// Studies that come with bpfassay
    Studies(Bundled),
    /// Kernels: known, cached, available for each architecture
    Kernels(ListKernelsArgs),
    /// Probes of the bundled tracer, which probe configurations use
    Probes(Bundled),
    /// Tools that come with bpfassay, which `run --tool` accepts by name
    Tools(Bundled),
    /// Results: study, how much of it was measured, fingerprint
    Results(ListedResults),
}

/// Arguments of `list studies`, `list probes` and `list tools`.
#[derive(Debug, Args)]
pub(crate) struct Bundled {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `list kernels`.
#[derive(Debug, Args)]
pub(crate) struct ListKernelsArgs {
    /// Only these architectures
    #[arg(long, value_name = "ARCH", value_delimiter = ',', value_parser = super::arch)]
    pub(crate) arch: Vec<Arch>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) packages: Packages,
}

/// Arguments of `list results`.
#[derive(Debug, Args)]
pub(crate) struct ListedResults {
    /// Results directories, or parent directories of them [default: bpfassay-results]
    #[arg(value_name = "DIR")]
    pub(crate) directories: Vec<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

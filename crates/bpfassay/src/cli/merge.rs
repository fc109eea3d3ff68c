// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `merge`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `merge`.
#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// The results directory to make, which must not exist
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,

    /// The results directories of the shards (`run --shard`), in any order
    #[arg(value_name = "DIR", required = true)]
    pub(crate) directories: Vec<PathBuf>,

    /// Merge what there is although boots are missing; `run --resume OUT` measures them
    #[arg(long)]
    pub(crate) partial: bool,
}

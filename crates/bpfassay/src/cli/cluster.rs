// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `cluster`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Packages, examples};

/// Arguments of `cluster`.
#[derive(Debug, Args)]
#[command(after_help = examples::CLUSTER)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

/// The commands for clusters.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Submit a study to Slurm as an array job, and merge the shards
    ///
    /// The job is submitted again until every shard is measured.
    Submit(Submit),
    /// Make one results directory from those of shards (`run --shard`)
    ///
    /// The shards must have the same plan and the same guests, and each boot must be in exactly one
    /// of them.
    Merge(MergeArgs),
}

/// Arguments of `cluster submit`.
#[derive(Debug, Args)]
pub(crate) struct Submit {
    /// The study: a bundled one, or the path of a study file
    pub(crate) study: String,

    /// Directory for the script, the shards and the merged results, on a file system that all nodes
    /// share; the same command with the same directory continues an interrupted study
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: PathBuf,

    /// Number of shards; each is an element of the array job and uses one node
    #[arg(long, visible_alias = "nodes", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) shards: u32,

    /// The partition of the cluster
    #[arg(long, value_name = "NAME")]
    pub(crate) partition: Option<String>,

    /// CPUs for each shard, which runs as many guests side by side
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cpus: u32,

    /// A further option for sbatch, with its value: `--sbatch=--time=30`; can be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) sbatch: Vec<String>,

    /// How often to submit a job for what is not measured, before giving up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempts: u32,

    /// Seconds between two looks at the queue
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) every: u64,

    /// Write the script for inspection and changes, and submit nothing
    #[arg(long)]
    pub(crate) no_submit: bool,

    /// Further arguments of `run` for each shard
    #[arg(last = true, value_name = "RUN_ARGUMENTS")]
    pub(crate) run_arguments: Vec<String>,

    #[command(flatten)]
    pub(crate) packages: Packages,
}

/// Arguments of `cluster merge`.
#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// The results directory to create, which must not exist
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,

    /// The results directories of the shards (`run --shard`), in any order
    #[arg(value_name = "DIR", required = true)]
    pub(crate) directories: Vec<PathBuf>,

    /// Merge even if boots are missing; `run --resume OUT` measures them
    #[arg(long)]
    pub(crate) partial: bool,
}

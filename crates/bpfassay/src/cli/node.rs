// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `node`, which `here --slurm` has Slurm start on each node.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand};

/// Arguments of `node`.
#[derive(Debug, Args)]
pub(crate) struct Node {
    /// What this process is.
    #[command(subcommand)]
    pub(crate) role: NodeRole,
}

/// What a process of a node is for.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeRole {
    /// Start the agent of this node, and pass on what it sends
    Relay {
        /// What the relays of one command have in common
        #[arg(long, value_name = "TOKEN")]
        token: String,
    },
    /// Join the run that is measured on this node, and become IOR
    Rank {
        /// What the relays of one command have in common
        #[arg(long, value_name = "TOKEN")]
        token: String,

        /// The directory of the run, on the file system under test
        #[arg(long, value_name = "DIR")]
        directory: PathBuf,

        /// IOR and its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
}

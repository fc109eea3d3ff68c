// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `node`, which Slurm starts on each node for `here --slurm`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand};

/// Arguments of `node`.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    pub(crate) role: NodeRole,
}

/// The roles of a process on a node.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeRole {
    /// Start the agent of this node, and pass on what it sends
    Relay {
        /// A token that the relays of one command share
        #[arg(long, value_name = "TOKEN")]
        token: String,
    },
    /// Join the run that is measured on this node, and become IOR
    Rank {
        /// A token that the relays of one command share
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

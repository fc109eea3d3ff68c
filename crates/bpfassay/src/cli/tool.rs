// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `tool`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples;

/// Arguments of `tool`.
#[derive(Debug, Args)]
#[command(after_help = examples::TOOL)]
pub(crate) struct ToolArgs {
    #[command(subcommand)]
    pub(crate) command: ToolCommand,
}

/// The commands for tool files.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// Write a tool file after inspecting the tool: facts as they were seen, and the possible
    /// meaning of its numbers as proposals in comments
    Init {
        /// An eBPF object, a bpftrace script or another script, a program, a file with a page of
        /// metrics, or the URL of an endpoint that runs here (http://127.0.0.1:9100/metrics)
        #[arg(value_name = "SOURCE")]
        source: String,

        /// The file to write, which must not exist; SOURCE must be in its directory or below
        /// [default: standard output, for a file in the directory of SOURCE]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

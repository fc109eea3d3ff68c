// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `generate`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::examples;

/// Arguments of `generate`.
#[derive(Debug, Args)]
#[command(after_help = examples::GENERATE)]
pub(crate) struct Generate {
    #[command(subcommand)]
    pub(crate) command: GenerateCommand,
}

/// The kinds of generated files.
#[derive(Debug, Subcommand)]
pub(crate) enum GenerateCommand {
    /// Print the JSON schema of a file that bpfassay writes
    Schema(Schema),
    /// Print completions for a shell
    ///
    /// For bash: `bpfassay generate completions bash
    /// >~/.local/share/bash-completion/completions/bpfassay`
    Completions {
        /// Which shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual's pages, one per command, for man(1)
    Man {
        /// Directory for the pages, such as ~/.local/share/man/man1; created if it does not exist
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Arguments of `generate schema`.
#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// The file whose schema to print
    #[arg(value_enum)]
    pub(crate) file: SchemaOf,
}

/// Files with a published schema.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SchemaOf {
    /// results.json
    Results,
    /// The testbed manifest
    Manifest,
    /// A line of `run --message-format json`
    Events,
}

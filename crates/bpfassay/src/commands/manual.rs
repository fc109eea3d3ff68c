// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay generate man`: makes the manual from the definition of `--help`.

#![allow(clippy::disallowed_methods, reason = "the user of this command names the directory")]

use std::{fs, path::Path};

use clap::CommandFactory as _;

use crate::{
    cli::Cli,
    exit::{CommandFailure, CommandOutcome, INFRASTRUCTURE, SUCCESS},
    output,
};

/// Writes one page per subcommand to `directory`, and one for the command.
///
/// # Errors
/// An infrastructure failure, if the directory cannot be created, or a page cannot be written or
/// its path printed.
pub(crate) fn pages(directory: &Path) -> CommandOutcome {
    let written = fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    written.map_err(|error| {
        let report = miette::miette!(
            help = "name a directory that can be written to",
            "cannot write the manual's pages to {}: {error}",
            directory.display()
        );
        CommandFailure { code: INFRASTRUCTURE, report }
    })?;
    super::print(&format!("{}\n", output::path(directory)))?;
    Ok(SUCCESS)
}

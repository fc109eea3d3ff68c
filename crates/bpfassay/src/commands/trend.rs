// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay trend`: shows figures along a series of kernels or results.

use bpfassay_report::{
    render::{Style, trend_markdown, trend_text},
    trend::trend as trend_of,
};
use bpfassay_results::file;

use crate::{
    cli::{self, CompareFormat},
    exit::{CommandFailure, CommandOutcome, SUCCESS},
};

/// Executes the command.
///
/// # Errors
/// - A usage failure, if results do not exist or are damaged, or were measured under different
///   clocks
/// - An infrastructure failure, if they cannot be read, or the trend cannot be printed
pub(crate) fn trend(arguments: &cli::TrendArgs) -> CommandOutcome {
    let read = |directory: &std::path::PathBuf| {
        let name = directory.file_name().unwrap_or(directory.as_os_str()).to_string_lossy().into_owned();
        file::read(directory).map(|results| (name, results))
    };
    let results = arguments.directories.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let trend = trend_of(&results).map_err(CommandFailure::usage)?;
    match arguments.format {
        CompareFormat::Text => {
            let width = super::terminal_width();
            super::print(&trend_text(&trend, Style { width }))?;
        }
        CompareFormat::Markdown => super::print(&trend_markdown(&trend))?,
        CompareFormat::Json => super::print_json(serde_json::to_string_pretty(&trend))?,
    }
    Ok(SUCCESS)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay report`: renders results for people and other programs.

#![allow(clippy::disallowed_methods, reason = "joins a fixed name to a directory that the user names")]

use std::path::Path;

use bpfassay_report::render::{FormatOptions, Rendered, code_coverage_file};
use bpfassay_results::file;

use crate::{
    cli,
    exit::{CommandFailure, CommandOutcome, SUCCESS, USAGE},
    output,
};

/// The variable with which GitHub names the file of a step's summary.
const STEP_SUMMARY: &str = "GITHUB_STEP_SUMMARY";

/// The largest summary of a step, in bytes; GitHub shows nothing of a larger one.
const MOST_OF_STEP: u64 = 1 << 20;

/// Executes the command.
///
/// # Errors
/// - A usage failure, if the results do not exist, are damaged, or lack what the format or the
///   figure shows, or if a binary format would be printed
/// - An infrastructure failure, if the results cannot be read, or the report cannot be written
pub(crate) fn report(arguments: &cli::ReportArgs) -> CommandOutcome {
    let results = file::read(&arguments.results)?;
    let format = arguments.format;
    let width = super::terminal_width().filter(|_| arguments.output.is_none());
    let beside = |name| {
        let directory =
            if arguments.results.is_dir() { Some(arguments.results.as_path()) } else { arguments.results.parent() };
        directory.unwrap_or(Path::new("")).join(name)
    };
    let file = match &arguments.output {
        Some(file) if file.as_os_str() == "-" => None,
        Some(file) => Some(file.clone()),
        None => format.file.map(beside),
    };
    let coverage = file.as_deref().and_then(coverage_file);
    let options = FormatOptions { width, figure: arguments.figure.as_deref(), coverage: coverage.as_deref() };
    let write = |file: &Path, bytes: &[u8]| match arguments.output {
        Some(_) => super::write(file, bytes),
        // Anybody may have made the results directory: nothing is written through a link in it.
        None => super::write_beside(file, bytes),
    };
    let (file, bytes) = match (file, (format.render)(&results, options)?) {
        (None, Rendered::Text(text) | Rendered::Page { page: text, .. }) => {
            super::print(&text)?;
            return Ok(SUCCESS);
        }
        (file, Rendered::Job { annotations, summary }) => {
            super::print(&annotations)?;
            match file {
                Some(file) => (file, summary.into_bytes()),
                None => return summarise(&summary, arguments.output.is_none()),
            }
        }
        (None, Rendered::Binary(_)) => {
            let name = format.name;
            let report = miette::miette!(
                help = "name a file with --output, or leave the option out",
                "the format {name} is not text, which alone is written to standard output"
            );
            return Err(CommandFailure { code: USAGE, report });
        }
        (Some(file), Rendered::Text(text)) => (file, text.into_bytes()),
        (Some(file), Rendered::Binary(bytes)) => (file, bytes),
        (Some(file), Rendered::Page { page, coverage: of_lines }) => {
            if let (Some(name), Some(of_lines)) = (&coverage, of_lines) {
                write(&file.with_file_name(name), of_lines.as_bytes())?;
            }
            (file, page.into_bytes())
        }
    };
    write(&file, &bytes)?;
    super::print(&format!("{}\n", output::path(&file)))?;
    Ok(SUCCESS)
}

/// Adds `summary` to that of GitHub's step, if there is one and `may_append` is set, or else prints
/// it.
fn summarise(summary: &str, may_append: bool) -> CommandOutcome {
    let of_step = std::env::var_os(STEP_SUMMARY).filter(|file| may_append && !file.is_empty());
    match of_step {
        Some(file) => super::append(Path::new(&file), summary.as_bytes(), MOST_OF_STEP)?,
        None => super::print(summary)?,
    }
    Ok(SUCCESS)
}

/// Names the page of code coverage next to `report`; `None` if `report` is a device or a pipe,
/// which has no place next to it.
fn coverage_file(report: &Path) -> Option<String> {
    let is_file = std::fs::metadata(report).map_or(true, |known| known.is_file());
    report.file_name().filter(|_| is_file).map(|name| code_coverage_file(&name.to_string_lossy()))
}

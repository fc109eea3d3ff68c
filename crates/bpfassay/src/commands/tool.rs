// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay tool`: writes tool files.

#![allow(clippy::disallowed_methods, reason = "the user of this command names the file")]

use std::{
    fs::OpenOptions,
    io::{self, ErrorKind, Write as _},
    path::Path,
};

use bpfassay_tool::init::{InitError, tool_file};

use crate::{
    cli::{ToolArgs, ToolCommand},
    exit::{CommandFailure, CommandOutcome, INFRASTRUCTURE, INTERNAL, SUCCESS, USAGE},
};

/// Executes the command.
///
/// # Errors
/// - A usage failure for a source that cannot be read or is not part of a tool, and for an output
///   file that exists
/// - An infrastructure failure, if an endpoint does not answer, or the tool file cannot be written
pub(crate) fn tool(arguments: &ToolArgs) -> CommandOutcome {
    let ToolCommand::Init { source, output } = &arguments.command;
    let written = match output {
        Some(file) => tool_file(source, file.parent()),
        // Standard output is probably redirected to a file in the current directory.
        None => match tool_file(source, Some(Path::new("."))) {
            Err(InitError::Elsewhere { path, .. }) => {
                let place = path.parent().unwrap_or(&path).display();
                tracing::warn!("paths in it begin at {place}: write the tool file there");
                tool_file(source, None)
            }
            other => other,
        },
    };
    let text = written.map_err(|error| {
        let code = match error {
            InitError::Endpoint { .. } => INFRASTRUCTURE,
            InitError::Fault(_) => INTERNAL,
            _ => USAGE,
        };
        CommandFailure::new(code, error)
    })?;
    match output {
        None => super::print(&text)?,
        Some(file) => create(file, &text).map_err(|error| refused(file, &error))?,
    }
    Ok(SUCCESS)
}

/// Writes a new file.
///
/// # Errors
/// If the file exists, or cannot be created or written.
fn create(file: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(file)?.write_all(text.as_bytes())
}

fn refused(file: &Path, error: &io::Error) -> CommandFailure {
    let (code, help) = match error.kind() {
        ErrorKind::AlreadyExists => (USAGE, "nothing is overwritten: name another file with --output"),
        _ => (INFRASTRUCTURE, "name a file in a directory that exists and can be written to"),
    };
    CommandFailure {
        code,
        report: miette::miette!(help = help, "cannot write the tool file {}: {error}", file.display()),
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exit status of the program.

use bpfassay_protocol::with_causes;

use std::{
    error::Error,
    io::{self, Write as _},
    process::ExitCode,
};

/// Exit status for invalid arguments.
pub(crate) const USAGE: u8 = 2;
/// Exit status when the kernel refuses the programs.
pub(crate) const REFUSED: u8 = 3;

/// Writes `text` to standard output.
pub(crate) fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error, 1),
    }
}

/// Writes `error` and its causes to standard error. If that fails too, it cannot be reported.
pub(crate) fn complain(error: &dyn Error, status: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "bpfassay-tracer: {}", with_causes(error));
    status.into()
}

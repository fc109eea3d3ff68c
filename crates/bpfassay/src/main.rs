// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `bpfassay`: its arguments, its questions, its output, its exit codes.
//!
//! - [`cli`]: the arguments
//! - [`exit`]: the exit codes
//! - [`commands`]: one module per command
//! - [`configuration`]: files with options of packages and mirrors
//! - [`selection`], [`host`], [`stop`], [`progress`]: what commands share
//! - [`output`]: everything is printed through it
//!
//! Errors become reports in this crate and nowhere else. Everything that another program could do
//! without a command line is in the libraries, mostly in bpfassay-runner.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod cli;
mod commands;
mod configuration;
mod defaults;
mod estimate;
mod exit;
mod host;
mod output;
mod progress;
mod selection;
mod stop;
mod trust;

use std::{io::Write as _, panic::AssertUnwindSafe, process::ExitCode};

use clap::Parser;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|fault| {
        // There is no way to report that standard error is closed; the exit code remains.
        let _ = writeln!(output::stderr(), "a fault of bpfassay itself: {fault}");
    }));
    if let Some(code) = commands::in_place_of_ior() {
        return code;
    }
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            output::print_clap(&answer);
            let code = u8::try_from(answer.exit_code()).unwrap_or(exit::USAGE);
            return ExitCode::from(if code == exit::SUCCESS { code } else { not_of_bisect(code) });
        }
    };
    output::log_to_stderr(cli.global.verbose);
    if let Err(error) = stop::survive_file_size_limit() {
        tracing::debug!("a file beyond the limit of this process (ulimit -f) ends it: {error}");
    }
    match std::panic::catch_unwind(AssertUnwindSafe(|| commands::perform(cli))) {
        Ok(outcome) => exit::finish(outcome),
        Err(_) => ExitCode::from(not_of_bisect(exit::INTERNAL)),
    }
}

/// Returns `code`, or with `--bisect` the code that stops `git bisect run`, which would treat
/// `code` as a bad kernel.
fn not_of_bisect(code: u8) -> u8 {
    // A misspelt `--bisect` counts, too.
    let is_meant = |argument: std::ffi::OsString| argument.as_encoded_bytes().starts_with(b"--bis");
    if std::env::args_os().any(is_meant) { exit::BISECT_ABORTED } else { code }
}

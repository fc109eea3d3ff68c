//! The command `bpfassay`: its arguments, its questions, its output, its exit codes.
//!
//! Here: [`cli`] (what can be said), [`exit`] (the exit codes), one module per verb in [`verbs`], what verbs share
//! ([`chosen`], [`setup`], [`bench`], [`host`], [`progress`]). Errors become reports here and nowhere else.
//! Not here: anything that another program could want to do without a command line; that lies in the libraries.

#![forbid(unsafe_code)]

mod bench;
mod chosen;
mod cli;
mod exit;
mod host;
mod progress;
mod provenance;
mod setup;
mod verbs;

use std::{io::IsTerminal, process::ExitCode};

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    log_to_stderr(cli.global.verbose);
    if !std::io::stderr().is_terminal() {
        // Logs and other programs get each message on one line.
        let plain = |_: &_| Box::new(miette::MietteHandlerOpts::new().wrap_lines(false).build()) as Box<_>;
        // A hook that is set already cannot be: this is the first thing done.
        let _ = miette::set_hook(Box::new(plain));
    }
    exit::finish(verbs::perform(cli))
}

/// Whether messages may have colours: <https://no-color.org>.
fn colours() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    std::io::stderr().is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// Our own crates say what they do (`-v`: more, `-vv`: everything); others only what is wrong. `RUST_LOG` has the last word.
fn log_to_stderr(verbose: u8) {
    let default = match verbose {
        0 => "warn,bpfassay=info,bpfassay_testbed=info,bpfassay_vm=warn,bpfassay_runner=warn",
        1 => "warn,bpfassay=debug,bpfassay_testbed=debug,bpfassay_vm=debug,bpfassay_runner=debug",
        _ => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours())
        .with_writer(std::io::stderr)
        // Where nobody reads standard error any more, telling so there would end the thread that tells.
        .log_internal_errors(false)
        .with_target(false)
        .without_time()
        .init();
}

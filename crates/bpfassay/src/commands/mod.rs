// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands, one module each.

#![allow(clippy::disallowed_methods, reason = "the user of this command names the file")]

mod against;
mod bundle;
mod cache;
mod check;
mod compare;
mod completions;
mod differences;
mod doctor;
mod fetch;
mod files;
mod here;
mod kernels;
mod lists;
mod lock;
mod manual;
mod merge;
mod node;
mod payload;
mod plan;
mod recorded;
mod report;
mod run;
mod schema;
mod shell;
mod slurm;
mod testbed;
mod tool;
mod trend;
mod verify;
mod verify_store;

use std::{
    io::{ErrorKind, IsTerminal, Write},
    path::Path,
};

use bpfassay_results::{OpenDirectory, plain};

pub(crate) use self::node::in_place_of_ior;
use crate::{
    cli::{
        Cli, CliCommand, ClusterArgs, ClusterCommand, Generate, GenerateCommand, List, ListCommand, TestbedArgs,
        TestbedCommand,
    },
    configuration,
    exit::{CommandFailure, CommandOutcome, INFRASTRUCTURE, INTERNAL},
    output, stop,
};

/// Executes the command line.
///
/// # Errors
/// - The errors of the command
/// - A usage failure, if a configuration file cannot be read or is invalid
/// - An infrastructure failure, if the host has no descriptors or memory left for the asynchronous
///   runtime
/// - An internal failure, if the runtime cannot be started for another reason
pub(crate) fn perform(cli: Cli) -> CommandOutcome {
    let Cli { command, mut global } = cli;
    if let Some(options) = command.packages() {
        global.packages = configuration::packages(options.clone())?;
        global.packages.refresh &= !global.offline;
    }
    match command {
        CliCommand::Run(arguments) => with_runtime(run::run(arguments, &global)),
        CliCommand::Check(arguments) => with_runtime(check::check(arguments, &global)),
        CliCommand::Here(arguments) => with_runtime(here::here(arguments)),
        CliCommand::Plan(arguments) => with_runtime(plan::plan(arguments, &global)),
        CliCommand::Compare(arguments) => compare::compare(&arguments),
        CliCommand::Trend(arguments) => trend::trend(&arguments),
        CliCommand::Report(arguments) => report::report(&arguments),
        CliCommand::Verify(arguments) => with_runtime(verify::verify(arguments, &global)),
        CliCommand::Shell(arguments) => with_runtime(shell::shell(arguments, &global)),
        CliCommand::Doctor(arguments) => with_runtime(doctor::doctor(arguments, &global)),
        CliCommand::List(List { command }) => match command {
            ListCommand::Studies(arguments) => lists::studies(&arguments),
            ListCommand::Kernels(arguments) => kernels::kernels(&arguments, &global),
            ListCommand::Probes(arguments) => lists::probes(&arguments),
            ListCommand::Tools(arguments) => lists::tools(&arguments),
            ListCommand::Results(arguments) => lists::results(&arguments),
        },
        CliCommand::Testbed(TestbedArgs { command }) => match command {
            TestbedCommand::Fetch(arguments) => with_runtime(fetch::fetch(*arguments, &global)),
            TestbedCommand::Lock(arguments) => lock::lock(&arguments, &global),
            TestbedCommand::Bundle(arguments) => bundle::bundle(&arguments, &global),
            TestbedCommand::Cache(arguments) => cache::cache(&arguments, &global),
            TestbedCommand::Payload(arguments) => payload::payload(arguments, &global),
            TestbedCommand::Compose { spec, output } => testbed::compose(&spec, &output, &global),
            TestbedCommand::Pack { manifest, output } => testbed::pack(&manifest, &output),
            TestbedCommand::Check { file, spec } => testbed::check(&file, spec),
        },
        CliCommand::Cluster(ClusterArgs { command }) => match command {
            ClusterCommand::Submit(arguments) => slurm::slurm(&arguments, &global),
            ClusterCommand::Merge(arguments) => merge::merge(&arguments),
        },
        CliCommand::Tool(arguments) => tool::tool(&arguments),
        CliCommand::Generate(Generate { command }) => match command {
            GenerateCommand::Schema(arguments) => schema::schema(&arguments),
            GenerateCommand::Completions { shell } => completions::completions(shell),
            GenerateCommand::Man { directory } => manual::pages(&directory),
        },
        CliCommand::Node(arguments) => with_runtime(node::node(arguments)),
    }
}

fn with_runtime(work: impl Future<Output = CommandOutcome>) -> CommandOutcome {
    stop::descriptors_for_runtime().map_err(|error| CommandFailure::new(INTERNAL, error))?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| CommandFailure::new(INTERNAL, error))?;
    runtime.block_on(work)
}

/// Returns the number of columns if standard output is a terminal that reports it.
fn terminal_width() -> Option<u16> {
    let stdout = output::stdout().into_inner();
    if !stdout.is_terminal() {
        return None;
    }
    rustix::termios::tcgetwinsize(stdout).ok().map(|size| size.ws_col).filter(|&columns| columns > 0)
}

/// Writes `text` to standard output, with control characters as numbers. A reader that has closed
/// its pipe is no failure.
///
/// # Errors
/// An infrastructure failure, if the text cannot be written, such as to a full disk.
pub(crate) fn print(text: &str) -> Result<(), CommandFailure> {
    let mut out = output::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A closed pipe (`| head`) means that the reader has read enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let report = miette::miette!(
                help = "send it to a place that can be written to and has space",
                "cannot write to standard output: {error}"
            );
            Err(CommandFailure { code: INFRASTRUCTURE, report })
        }
        _ => Ok(()),
    }
}

/// Prints a JSON text, whose strings keep their meaning.
///
/// # Errors
/// The errors of [`print()`], and an internal failure if the text could not be made.
fn print_json(text: Result<String, serde_json::Error>) -> Result<(), CommandFailure> {
    let text = text.map_err(|error| CommandFailure::new(INTERNAL, error))?;
    print(&(plain::json(&text).into_owned() + "\n"))
}

/// Writes a report to `file`, the value or the default of `--output`.
///
/// # Errors
/// An infrastructure failure, if the file cannot be written.
fn write(file: &Path, report: &[u8]) -> Result<(), CommandFailure> {
    written(file, std::fs::write(file, report))
}

/// Appends a report to `file`, which can hold at most `most` bytes.
///
/// # Errors
/// An infrastructure failure, if the file cannot be written, or would become larger.
fn append(file: &Path, report: &[u8], most: u64) -> Result<(), CommandFailure> {
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
    let done = opened.and_then(|mut opened| {
        let length = opened.metadata()?.len();
        if length.saturating_add(report.len() as u64) > most {
            let why = format!("it has {length} bytes already, and holds {most}: write the report in a step of its own");
            return Err(std::io::Error::other(why));
        }
        opened.write_all(report)
    });
    written(file, done)
}

/// Writes a report to `file` in a results directory, and replaces an earlier report. It does not
/// write through a symbolic link or into a pipe.
///
/// # Errors
/// An infrastructure failure, if the file cannot be written.
fn write_beside(file: &Path, report: &[u8]) -> Result<(), CommandFailure> {
    let directory = OpenDirectory::open(file.parent().unwrap_or(Path::new("")));
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    written(file, directory.and_then(|directory| directory.replace(name, report)))
}

fn written(file: &Path, done: std::io::Result<()>) -> Result<(), CommandFailure> {
    done.map_err(|error| {
        let report = miette::miette!(
            help = "name another file with --output, or `-` for standard output",
            "cannot write the report to {}: {error}",
            file.display()
        );
        CommandFailure { code: INFRASTRUCTURE, report }
    })
}

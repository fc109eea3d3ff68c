// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay list`: lists what can be measured, and results.

#![allow(clippy::disallowed_methods, reason = "the user of this command names the directory")]

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use bpfassay_protocol::probe::{ByteMeaning, Probe};
use bpfassay_report::render::wrap::push_wrapped;
use bpfassay_results::{Again, JournalContents, fingerprint::fingerprint, journal::FILE_NAME, plain};
use bpfassay_runner::DEFAULT_RESULTS;
use bpfassay_study::Shard;
use bpfassay_tool::{
    ToolFile, bundled,
    file::{Debian, Source},
};
use serde_json::{Value, json};

use crate::{
    cli,
    exit::{CommandFailure, CommandOutcome, INTERNAL, SUCCESS, USAGE},
    output,
};

/// A study, a probe configuration or a tool with its description.
#[derive(Debug)]
struct Described {
    name: &'static str,
    description: String,
}

/// Prints the bundled studies.
///
/// # Errors
/// An infrastructure failure, if the list cannot be printed. An error in a bundled file is an
/// internal failure, which a test excludes.
pub(crate) fn studies(arguments: &cli::Bundled) -> CommandOutcome {
    let describe = |name: &str| bpfassay_study::load(name).map(|study| study.description);
    print_named(&described(bpfassay_study::bundled_studies::NAMES, describe)?, arguments.json)
}

/// Prints the bundled tools.
///
/// # Errors
/// The errors of [`studies`].
pub(crate) fn tools(arguments: &cli::Bundled) -> CommandOutcome {
    let describe = |name: &str| bpfassay_tool::load(name).map(|tool| tool.file.description);
    if arguments.json {
        let names: Vec<_> = bundled::names().collect();
        return print_named(&described(&names, describe)?, true);
    }
    let names: Vec<_> = bundled::with_files().collect();
    print_named(&described(&names, describe)?, false)?;
    let of_packages = bundled::of_packages().map_err(|error| CommandFailure::new(INTERNAL, error))?;
    let mut text = String::new();
    for programs in of_packages.chunk_by(|one, next| package(one) == package(next)) {
        let names: Vec<&str> = programs.iter().map(|tool| &*tool.name).collect();
        text.push_str(&format!("\n{}:\n", programs.first().map(package).unwrap_or_default()));
        push_wrapped(&mut text, &format!("    {}", names.join(", ")), super::terminal_width());
    }
    super::print(&text)?;
    Ok(SUCCESS)
}

/// Returns the name and suite of the package that has `tool`.
fn package(tool: &ToolFile) -> String {
    let Source::Debian(list) = &tool.source else { return String::new() };
    list.first().map(|Debian { from, .. }| format!("{} ({})", from.package, from.suite)).unwrap_or_default()
}

/// Reads the descriptions of bundled files.
///
/// # Errors
/// An internal failure for an invalid file.
fn described<E: std::error::Error + Send + Sync + 'static>(
    names: &[&'static str],
    describe: impl Fn(&str) -> Result<String, E>,
) -> Result<Vec<Described>, CommandFailure> {
    let read = |&name: &&'static str| Ok(Described { name, description: describe(name)? });
    names.iter().map(read).collect::<Result<_, E>>().map_err(|error| CommandFailure::new(INTERNAL, error))
}

/// Prints the probes of the bundled tracer.
///
/// # Errors
/// An infrastructure failure, if the list cannot be printed.
pub(crate) fn probes(arguments: &cli::Bundled) -> CommandOutcome {
    let names: Vec<_> =
        Probe::ALL.iter().map(|probe| Described { name: probe.name(), description: description(*probe) }).collect();
    print_named(&names, arguments.json)
}

/// Describes what a probe counts. The name of the probe describes its hooks.
fn description(probe: Probe) -> String {
    let counts = match probe.counts() {
        Some(ByteMeaning::Requested) => "the bytes that calls request",
        Some(ByteMeaning::Returned) => "the bytes that calls return",
        None if probe == Probe::None => "nothing: the baseline",
        None => "other events, by sets of programs (programs+sched+tcp)",
    };
    let together = if probe.distinguishes_mounts() { "" } else { ", of all mounts together" };
    format!("counts {counts}{together}")
}

fn print_named(named: &[Described], json: bool) -> CommandOutcome {
    if json {
        let as_json = |one: &Described| json!({ "name": one.name, "description": one.description });
        super::print_json(serde_json::to_string_pretty(&named.iter().map(as_json).collect::<Vec<_>>()))?;
        return Ok(SUCCESS);
    }
    let width = named.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Described { name, description } in named {
        push_wrapped(&mut text, &format!("{name:<width$}  {}", plain::line(description)), super::terminal_width());
    }
    super::print(&text)?;
    Ok(SUCCESS)
}

/// Results in a directory.
#[derive(Debug)]
struct MeasuredResults {
    directory: PathBuf,
    /// `None` if the journal cannot be read.
    run: Option<ListedRun>,
    /// Why the journal cannot be read.
    problem: Option<String>,
}

#[derive(Debug)]
struct ListedRun {
    study: String,
    shard: Option<Shard>,
    clock: &'static str,
    started_unix_ms: u64,
    runs: usize,
    planned: usize,
    /// The fingerprint of the raw figures; `None` for an incomplete run.
    fingerprint: Option<String>,
}

/// Prints the results in directories.
///
/// # Errors
/// - A usage failure, if a given directory cannot be read
/// - An infrastructure failure, if the list cannot be printed
pub(crate) fn results(arguments: &cli::ListedResults) -> CommandOutcome {
    let given = arguments.directories.as_slice();
    let default = [PathBuf::from(DEFAULT_RESULTS)];
    let directories = if given.is_empty() { &default[..] } else { given };
    let mut found = Vec::new();
    for directory in directories {
        match below(directory) {
            Ok(below) => found.extend(below.into_iter().map(measured)),
            // No results exist in this directory yet.
            Err(error) if given.is_empty() && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let directory = output::path(directory);
                return Err(CommandFailure {
                    code: USAGE,
                    report: miette::miette!("cannot read {directory}: {error}"),
                });
            }
        }
    }
    if arguments.json {
        super::print_json(serde_json::to_string_pretty(&found.iter().map(as_json).collect::<Vec<_>>()))?;
    } else {
        super::print(&table(&found))?;
    }
    Ok(SUCCESS)
}

/// Returns directories with a journal: `directory`, or directories in it, by name. It skips links,
/// such as the one to the latest directory.
fn below(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let has_journal = |directory: &Path| directory.join(FILE_NAME).is_file();
    if has_journal(directory) {
        return Ok(vec![directory.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && has_journal(&entry.path()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn measured(directory: PathBuf) -> MeasuredResults {
    match JournalContents::read(&directory) {
        Ok(contents) => MeasuredResults { run: Some(run(&contents)), problem: None, directory },
        Err(error) => MeasuredResults { run: None, problem: Some(bpfassay_protocol::with_causes(&error)), directory },
    }
}

fn run(contents: &JournalContents) -> ListedRun {
    let (header, records) = (&contents.header, contents.records());
    let planned = header.plan.measured_blocks().iter().map(|block| block.runs.len()).sum();
    let is_complete = contents.to_do(Again::Host).is_empty();
    ListedRun {
        study: header.plan.study.name.clone(),
        shard: header.plan.shard,
        clock: header.plan.study.clock.name(),
        started_unix_ms: header.started_unix_ms,
        runs: records.len(),
        planned,
        fingerprint: is_complete.then(|| fingerprint(records.into_values())),
    }
}

fn as_json(MeasuredResults { directory, run, problem }: &MeasuredResults) -> Value {
    let run = run.as_ref().map(|run| {
        json!({
            "study": run.study, "shard": run.shard, "clock": run.clock, "started_unix_ms": run.started_unix_ms, "runs": run.runs,
            "planned": run.planned, "fingerprint": run.fingerprint,
        })
    });
    json!({ "directory": directory, "run": run, "problem": problem })
}

fn table(found: &[MeasuredResults]) -> String {
    if found.is_empty() {
        return "no results: `bpfassay run` makes some\n".to_owned();
    }
    let mut text = String::new();
    for MeasuredResults { directory, run, problem } in found {
        let _ = writeln!(text, "{}", output::path(directory));
        let line = match run {
            Some(ListedRun { study, shard, clock, runs, planned, fingerprint, .. }) => {
                let study = plain::line(study);
                let shard = shard.map(|shard| format!(", {}", shard.phrase())).unwrap_or_default();
                let state = fingerprint.as_deref().map_or_else(
                    || "not complete: bpfassay run --resume continues it".to_owned(),
                    |fingerprint| format!("fingerprint {}", fingerprint.get(..16).unwrap_or(fingerprint)),
                );
                format!("{study}{shard}, {clock}, {runs} of {planned} runs, {state}")
            }
            None => plain::line(problem.as_deref().unwrap_or_default()).into_owned(),
        };
        let _ = writeln!(text, "  {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_with_the_program_is_described() {
        for probe in Probe::ALL {
            assert!(description(*probe).len() > 10);
        }
        let of = |name: &&'static str| bpfassay_study::load(name).unwrap().description;
        assert!(bpfassay_study::bundled_studies::NAMES.iter().map(of).all(|text| !text.is_empty()));
        let of = |name: &'static str| bpfassay_tool::load(name).unwrap().file.description;
        assert!(bundled::names().map(of).all(|text| !text.is_empty()));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay cluster submit`: runs a study as an array job, and follows it to the merged results.

#![allow(clippy::disallowed_methods, reason = "joins a fixed name to a directory that the user names")]

use std::{
    env,
    ffi::OsString,
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use bpfassay_results::plain;
use bpfassay_runner::{Merge, SlurmError, SlurmEvent, SlurmJob, StorePlace, Submission};
use clap::{Arg, Args as _, CommandFactory as _, FromArgMatches as _, parser::ValueSource};

use super::{merge, print};
use crate::{
    cli::{self, Cli, CliCommand},
    exit::{CommandFailure, CommandOutcome, SUCCESS, USAGE},
    output,
};

/// The directory of the merged results, inside the directory of the job.
const MERGED: &str = "merged";

/// Executes the command. The exit code is the exit code of `cluster merge`, which evaluates the
/// whole study.
///
/// # Errors
/// - A usage failure, if arguments are wrong or the directory has another job
/// - An infrastructure failure, if Slurm cannot be used, or shards are not measured after all
///   attempts
/// - The errors of `cluster merge`
pub(crate) fn slurm(arguments: &cli::Submit, global: &cli::Global) -> CommandOutcome {
    let merged = arguments.output.join(MERGED);
    if merged.exists() {
        let report = miette::miette!(
            help = "name another directory with --output to measure the study again",
            "{} has been measured and merged already",
            arguments.output.display()
        );
        return Err(CommandFailure { code: USAGE, report });
    }
    let mut submission = Submission::prepare(&arguments.output, job(arguments, global)?)?;
    let begun = Instant::now();
    say(begun, &submission.script());
    if arguments.no_submit {
        print("Nothing is submitted: the same command without --no-submit submits the script as it is then.\n")?;
        return Ok(SUCCESS);
    }
    submission.measure(arguments.attempts, Duration::from_secs(arguments.every), &mut |event| say(begun, &event))?;
    merge::write(Merge::read(&submission.shards())?.complete()?, &merged)
}

/// Creates the job, with arguments that `run` accepts.
fn job(arguments: &cli::Submit, global: &cli::Global) -> Result<SlurmJob, CommandFailure> {
    let failed =
        |error| CommandFailure::infrastructure(SlurmError::File { action: "find", path: ".".into(), source: error });
    let program = env::current_exe().map_err(failed)?;
    let working_directory = env::current_dir().map_err(failed)?;
    let global_arguments = global.of_testbed().into_iter().map(text).collect::<Result<_, _>>()?;
    let run = check(&arguments.study, &arguments.run_arguments)?;
    // A store that only the environment names would not reach nodes that do not get the
    // environment.
    let continued_arguments = store_arguments(&run)?;
    let has_store = |argument: &String| argument == "--store" || argument.starts_with("--store=");
    let of_environment = if arguments.run_arguments.iter().any(has_store) { 0 } else { 2 };
    let run_arguments =
        arguments.run_arguments.iter().chain(continued_arguments.iter().take(of_environment)).cloned().collect();
    let partition = arguments.partition.iter().map(|name| format!("--partition={name}"));
    Ok(SlurmJob {
        study: arguments.study.clone(),
        shards: arguments.shards,
        run_arguments,
        global_arguments,
        continued_arguments,
        guests: run.execution.jobs,
        program,
        working_directory,
        cpus: arguments.cpus,
        options: partition.chain(arguments.sbatch.iter().cloned()).collect(),
    })
}

/// Returns `argument` as text for the script.
fn text(argument: OsString) -> Result<String, CommandFailure> {
    argument.into_string().map_err(|argument| {
        let report = miette::miette!(
            help = "name it by a path of plain characters, such as a symbolic link to it",
            "{} is no UTF-8 text, so the script of the job cannot have it",
            argument.display()
        );
        CommandFailure { code: USAGE, report }
    })
}

/// Returns the store of blocks that `run` uses, and its options, as arguments: the store first.
fn store_arguments(run: &cli::RunArgs) -> Result<Vec<String>, CommandFailure> {
    let cli::Execution { store, fresh, store_wall, store_reproducible, .. } = &run.execution;
    let Some(store) = store else { return Ok(Vec::new()) };
    let mut all = vec![
        "--store".to_owned(),
        text(match store {
            StorePlace::Directory(path) => path.clone().into_os_string(),
            StorePlace::Url(url) => String::from(url.as_ref()).into(),
        })?,
    ];
    all.extend(
        [("--fresh", fresh), ("--store-wall", store_wall), ("--store-reproducible", store_reproducible)]
            .iter()
            .filter(|(_, is)| **is)
            .map(|(name, _)| (*name).to_owned()),
    );
    Ok(all)
}

/// Checks that `run` accepts these arguments, and that the script does not have one of them
/// already. Returns the parsed arguments.
fn check(study: &str, run_arguments: &[String]) -> Result<cli::RunArgs, CommandFailure> {
    let words = ["bpfassay", "run", study].into_iter().chain(run_arguments.iter().map(String::as_str));
    let wrong = |problem: String| {
        let report = miette::miette!(
            help = "`bpfassay run --help` lists what may stand behind `--`",
            "the arguments for `run` are wrong: {problem}"
        );
        CommandFailure { code: USAGE, report }
    };
    // clap adds colours and usage; the first line describes the error.
    let first_line = |error: clap::Error| {
        wrong(error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned())
    };
    let matches = Cli::command().try_get_matches_from(words).map_err(first_line)?;
    // The shards have these options of this command, also when they are continued.
    let of_run = matches.subcommand_matches("run").unwrap_or(&matches);
    let is_named = |argument: &&Arg| of_run.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine);
    let of_submission = cli::Packages::augment_args(cli::Global::augment_args(clap::Command::new("submission")));
    if let Some(named) = of_submission.get_arguments().find(is_named) {
        let name = named.get_long().unwrap_or_default();
        return Err(wrong(format!("shards have --{name} from this command: name it before `--`")));
    }
    let parsed = Cli::from_arg_matches(&matches).map_err(first_line)?;
    let CliCommand::Run(run) = parsed.command else { return Err(wrong("they name another command".to_owned())) };
    let own = [
        ("--output", run.execution.output.is_some()),
        ("--resume", run.resume.is_some()),
        ("--shard", run.selection.shard.is_some()),
        ("--against", run.against.against.is_some()),
    ];
    match own.into_iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(wrong(format!("{name} is not for a shard of an array job"))),
        None => Ok(run),
    }
}

/// Prints an event on standard error.
fn say(begun: Instant, event: &SlurmEvent) {
    let path = |path: &Path| plain::line(&path.display().to_string()).into_owned();
    let text = match event {
        SlurmEvent::Script { path: script, is_new: true } => format!("wrote {}", path(script)),
        SlurmEvent::Script { path: script, is_new: false } => {
            format!("{} is there, and is taken as it is", path(script))
        }
        SlurmEvent::Submitted { id, elements } => {
            format!(
                "submitted job {id} for the shards {elements}; an interrupt of this command does not end it (scancel {id} does)"
            )
        }
        SlurmEvent::Found { id } => format!("job {id} was submitted before, and is followed"),
        SlurmEvent::Progress(progress) => progress.to_string(),
        SlurmEvent::NoController(message) => format!("waiting for Slurm's controller: {}", plain::line(message)),
        SlurmEvent::Unfinished { shards, reason } => {
            format!(
                "{} shards are not measured; shard {}: {}",
                shards.len(),
                shards.first().copied().unwrap_or_default(),
                plain::line(reason)
            )
        }
    };
    // A closed standard error is no reason to abandon a job.
    let _ = writeln!(output::stderr(), "[{:>4} s] {text}", begun.elapsed().as_secs());
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{ClusterArgs, ClusterCommand};

    /// Returns the common options that the shards of this command line get.
    fn of_shards(options: &[&str]) -> Vec<String> {
        let words = ["bpfassay", "cluster", "submit", "quick", "--output", "job", "--shards", "2"];
        let parsed = Cli::try_parse_from(words.iter().chain(options)).unwrap();
        let CliCommand::Cluster(ClusterArgs { command: ClusterCommand::Submit(arguments) }) = parsed.command else {
            panic!("not a submission")
        };
        let mut global = parsed.global;
        global.packages = arguments.packages.clone();
        job(&arguments, &global).unwrap().global_arguments
    }

    #[test]
    fn shards_have_every_option_that_decides_what_they_measure_and_fetch() {
        let given = [
            ["--cache", "a cache"],
            ["--from", "assets"],
            ["--from", "https://host/more"],
            ["--mirror", "https://host/debian"],
            ["--archive", "/archive"],
            ["--catalogue", "own.toml"],
        ]
        .concat();
        let alone = ["--newest", "--refresh", "--accept-stale"];
        for wanted in [vec!["--offline"], given, alone.to_vec()] {
            assert_eq!(of_shards(&wanted), wanted);
        }
        // Options for the terminal, or for the command itself, are left out.
        assert_eq!(of_shards(&["--yes", "-vv"]), Vec::<String>::new());
    }

    #[test]
    fn a_shard_that_is_continued_has_the_store_too() {
        let words = ["bpfassay", "cluster", "submit", "quick", "--output", "job", "--shards", "2", "--"];
        let of = |given: &[&str]| {
            let parsed = Cli::try_parse_from(words.iter().chain(given)).unwrap();
            let CliCommand::Cluster(ClusterArgs { command: ClusterCommand::Submit(arguments) }) = parsed.command else {
                panic!("not a submission")
            };
            let job = job(&arguments, &parsed.global).unwrap();
            (job.run_arguments, job.continued_arguments)
        };
        for (given, continued) in [
            (&["--rounds", "3"][..], &[][..]),
            (&["--store", "s"], &["--store", "s"]),
            (&["--rounds", "3", "--store=s", "--fresh"], &["--store", "s", "--fresh"]),
        ] {
            assert_eq!(
                of(given),
                (
                    given.iter().map(|&text| text.to_owned()).collect(),
                    continued.iter().map(|&text| text.to_owned()).collect()
                )
            );
        }
    }

    #[test]
    fn options_of_a_submission_are_not_for_run_alone() {
        let refused = |given: &[&str]| {
            let given: Vec<String> = given.iter().map(|&text| text.to_owned()).collect();
            check("quick", &given).err().map(|failure| failure.report.to_string())
        };
        for (given, name) in [
            (&["--offline"][..], "--offline"),
            (&["-y"], "--yes"),
            (&["--cache", "x"], "--cache"),
            (&["--rounds", "2", "--from=x"], "--from"),
        ] {
            let problem = refused(given).unwrap();
            assert!(problem.contains(&format!("shards have {name} from this command")), "{problem}");
        }
        assert_eq!(refused(&["--rounds", "2"]), None);
    }
}

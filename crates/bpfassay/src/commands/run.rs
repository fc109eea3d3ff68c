// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay run`: runs a study.

#![allow(clippy::disallowed_methods, reason = "joins a fixed name to a directory that the user names")]

mod run_mode;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bpfassay_packages::stages::StageKind;
use bpfassay_protocol::Arch;
use bpfassay_report::{
    conclusion::{Conclusion, conclusion, failed_by_host},
    render,
};
use bpfassay_results::{Again, Event, Journal, JournalError, OpenDirectory, Results, event::Concluded, file};
use bpfassay_runner::{BlockReuse, BlockStore, EventObserver, PoolSummary, Session, StudySelection, Testbed};
use bpfassay_stats::Verdict;
use bpfassay_study::Plan;
use bpfassay_vm::shell_command;

use self::run_mode::RunMode;
use super::{
    against::{self, Against, Judged},
    recorded,
};
use crate::{
    cli::{self, MessageFormat},
    estimate,
    exit::{
        CommandFailure, CommandOutcome, INCONCLUSIVE, INFRASTRUCTURE, INTERRUPTED, REGRESSION, SUCCESS, UNEXPECTED,
    },
    host, output,
    progress::{self, Display, Reporter, Reporting, bundled},
    selection::{self, is_path, store_options},
    stop, trust,
};

/// Executes the command. Runs that fail are results, and no failures of the command.
///
/// # Errors
/// - A usage failure for a study, a tool file, an image, a manifest or a results directory that
///   cannot be used
/// - An infrastructure failure, if the host lacks packages, a guest cannot be built, QEMU does not
///   start, or the cache, the journal or the results cannot be read or written
///
/// If `--bisect` is set, the exit code is for `git bisect run`.
pub(crate) async fn run(arguments: cli::RunArgs, global: &cli::Global) -> CommandOutcome {
    let is_bisect = arguments.against.bisect;
    let outcome = measure(arguments, global).await;
    if is_bisect { against::for_bisect(outcome) } else { outcome }
}

async fn measure(arguments: cli::RunArgs, global: &cli::Global) -> CommandOutcome {
    let against = Against::read(&arguments.against)?;
    let mode = RunMode::of(&arguments)?;
    let mut options = store_options(global);
    options.qemu = arguments.execution.qemu.qemu.or(mode.qemu());
    if let Some(bundle) = &arguments.execution.overlays.bundle {
        let trusts = arguments.execution.emulator.trust_emulator;
        options = options.with_bundle(bundle, |packages| trust::agree(bundle, packages, trusts, global))?;
    }
    let (selection, plan) = mode.selected(&arguments, global, &mut options)?;
    let against = against.map(|against| against.check(&plan, &arguments.selection.probe)).transpose()?;
    warn_of_lacks(&selection, &plan)?;
    if let Some(directory) = &arguments.execution.output {
        // Check this first: the set-up can take minutes.
        Journal::may_create(directory)?;
    }
    // Open the store of blocks equally early, for the same reason.
    let blocks = blocks(&arguments.execution)?;
    let display = Display::begin(arguments.execution.message_format);
    let stages = display.stages();
    let missing = host::MissingPackages::find(&plan, selection.host_packages(), (global, &options))?;
    missing.install_to_make(&stages)?;
    let asked = again(arguments.again);
    let store = mode.store(&options, &stages, asked)?;
    // Only a part of the runs is left of a continued run.
    if !matches!(mode, RunMode::Resumed(_)) {
        estimate::lines(&store, &selection, &plan).iter().for_each(|line| display.line(line));
    }
    let (wish, jobs) = (arguments.execution.accelerator, arguments.execution.jobs);
    let selection = Arc::new(selection);
    let session = if mode.begins_early(&plan, &selection, wish) {
        let parts = Testbed::provide_parts(Arc::clone(&store), Arc::clone(&selection), plan.clone());
        // This runs while guests are built.
        missing.install_to_boot(&stages)?;
        Session::set_up_early(parts, plan, wish, jobs).await?
    } else {
        missing.install_to_boot(&stages)?;
        let testbed = mode.testbed(&store, &selection, &plan)?;
        let session = Session::set_up(&store, testbed, plan, wish, jobs).await?;
        mode.check_qemu(&session)?;
        match mode {
            RunMode::Resumed(_) => session,
            RunMode::New | RunMode::Like(_) => session.with_clock_of_host(&selection, &options)?,
        }
    };
    let session = match blocks {
        Some(blocks) => session.reusing(blocks),
        None => session,
    };
    let work = mode.work(&session, arguments.execution.output.as_deref(), asked)?;
    let plan = session.plan();
    let (directory, opened) = (work.directory.clone(), work.journal.directory().clone());
    let overlays = overlays(&arguments, global);
    if let Some(why) = session.unused_store() {
        tracing::warn!("the store of blocks is not used, because {why}: --store-wall uses it all the same");
    }
    let reporter = Reporter(Reporting {
        study: if arguments.resume.is_some() { bundled(plan) } else { Some(arguments.selection.study.as_str()) },
        clock: plan.study.clock,
        overlays: &overlays,
        display: &display,
        here: None,
    });
    display.show_matrix(plan);
    let measuring = stages.begin(StageKind::Measuring, "");
    let summary =
        session.execute(work, &EventObserver::new(plan, session.provenance(), &reporter), &stop::on_signals()).await?;
    measuring.end(true);
    display.finish();
    estimate::remember(&store, &stages, plan, &summary);
    let how_to_continue = format!("; continue with: bpfassay run --resume {}", shell_command([&directory]));
    let end = RunEnd { summary, how_to_continue, against };
    // Reporting ends as a stage before the results are printed, so that `concluded` stays the last
    // event of a run.
    let concluded = stages.during(StageKind::Reporting, "", |_| concluded(&opened))?;
    let code = report(&directory, concluded, &end, arguments.execution.message_format)?;
    if arguments.execution.timings {
        super::print(&display.timings(&stages))?;
    }
    Ok(code)
}

/// Opens the store of blocks, if one was requested.
fn blocks(execution: &cli::Execution) -> Result<Option<BlockReuse>, CommandFailure> {
    let Some(place) = &execution.store else { return Ok(None) };
    let store = BlockStore::open(place)?;
    let cli::Execution { fresh, store_wall: wall, store_reproducible: reproducible, .. } = *execution;
    Ok(Some(BlockReuse { store, fresh, wall, reproducible }))
}

/// Warns of what the user's kernel lacks for `plan`.
///
/// # Errors
/// A usage failure, if the kernel's configuration cannot be read.
fn warn_of_lacks(selection: &StudySelection, plan: &Plan) -> Result<(), CommandFailure> {
    let lacks = selection::lacks(selection, plan)?;
    for lack in &lacks.options {
        tracing::warn!("the kernel's .config does not set {lack}");
    }
    for lack in &lacks.modules {
        tracing::warn!("the kernel's packages have no module {lack}");
    }
    if let Some(without) = lacks.without_nfs() {
        tracing::warn!("{without}");
    }
    Ok(())
}

/// Tells which failures to repeat.
const fn again(asked: cli::AgainChoice) -> Again {
    match asked {
        cli::AgainChoice::Host => Again::Host,
        cli::AgainChoice::Failed => Again::Failed,
    }
}

/// Derives the results of the run in `directory`, which has just ended.
///
/// # Errors
/// The errors of [`bpfassay_runner::conclude_in`]; an infrastructure failure, if the directory, or
/// a file written there, no longer exists.
pub(super) fn concluded(directory: &OpenDirectory) -> Result<(Results, Option<String>), CommandFailure> {
    bpfassay_runner::conclude_in(directory).map_err(|error| match error {
        bpfassay_runner::Error::Journal(error @ JournalError::Io { .. }) => CommandFailure::infrastructure(error),
        error => error.into(),
    })
}

/// How the run ended.
pub(super) struct RunEnd {
    /// The numbers of measured, refused and failed runs, and why the run stopped.
    pub(super) summary: PoolSummary,
    /// How to continue, as the end of a sentence, if something is left to do.
    pub(super) how_to_continue: String,
    /// The results to compare with, if any.
    pub(super) against: Option<Against>,
}

/// Prints the results in `directory`, with their fingerprint and the remaining work.
///
/// # Errors
/// - An infrastructure failure, if the results cannot be printed
/// - A usage failure, if they cannot be compared with the base
pub(super) fn report(
    directory: &Path,
    (results, fingerprint): (Results, Option<String>),
    end: &RunEnd,
    format: MessageFormat,
) -> CommandOutcome {
    let RunEnd { summary: PoolSummary { cancelled, paused, .. }, how_to_continue, against } = end;
    let failed_by_host = failed_by_host(&results);
    let judged = match against {
        Some(against) if !cancelled => Some(against.judge(&results)?),
        _ => None,
    };
    let code = if *cancelled { INTERRUPTED } else { verdict(&results, paused.is_some()) };
    let code = judged.as_ref().map_or(code, |judged| judged.code(code, paused.is_some() || failed_by_host > 0));
    let path = directory.join(file::FILE_NAME);
    match format {
        MessageFormat::Human => {
            let width = super::terminal_width();
            let mut text = render::screen(&results, render::Screen { width, symbols: output::takes_symbols() });
            if let Some(fingerprint) = fingerprint {
                text.push_str(&format!("fingerprint of the raw figures: {fingerprint}\n"));
                text.extend(recorded::line(&fingerprint));
            }
            if *cancelled {
                text.push_str(&format!("interrupted{how_to_continue}\n"));
            } else if let Some(why) = paused {
                text.push_str(&format!("{why}{how_to_continue}\n"));
            } else if failed_by_host > 0 {
                let runs = if failed_by_host == 1 { "1 run was" } else { &format!("{failed_by_host} runs were") };
                text.push_str(&format!("host failure: {runs} not measured{how_to_continue}\n"));
            }
            let is_bisect = judged.as_ref().is_some_and(Judged::is_bisect);
            if let Some(judged) = judged {
                text.push_str(&judged.text(render::Style { width }, code));
            }
            text.push_str(&last_line(directory, (!is_bisect).then_some(code)));
            super::print(&text)?;
        }
        MessageFormat::Json => {
            let count = |verdict| results.gates.iter().filter(|gate| gate.verdict == verdict).count() as u64;
            let line = progress::json(&Event::Concluded(Concluded {
                results: path,
                passes: count(Verdict::Pass),
                regressions: count(Verdict::Regression),
                inconclusive: count(Verdict::Inconclusive),
                fingerprint,
                exit_code: code,
            }));
            super::print(&line.unwrap_or_default())?;
        }
    }
    Ok(code)
}

/// Formats the last line, which agrees with the exit code: `results, as expected: bpfassay report
/// DIR`. The codes of `git bisect run` have another meaning, and no words.
fn last_line(directory: &Path, code: Option<u8>) -> String {
    let words = match code {
        Some(SUCCESS) => ", as expected",
        Some(REGRESSION) => ", WORSE than allowed",
        Some(UNEXPECTED) => ", NOT as expected",
        Some(INCONCLUSIVE) => ", inconclusive",
        Some(INFRASTRUCTURE | INTERRUPTED) => ", NOT complete",
        _ => "",
    };
    // A name that is not text is printed with numbers, which a shell does not read.
    let directory = bpfassay_results::plain::line(&shell_command([directory])).into_owned();
    format!("results{words}: bpfassay report {directory}\n")
}

/// Returns, as arguments, the options that another command needs to find the same guests.
fn overlays(arguments: &cli::RunArgs, global: &cli::Global) -> Vec<String> {
    let path = |path: &Path| path.display().to_string();
    let selection = &arguments.selection;
    // Several paths are the packages of one kernel.
    let kernels: Vec<_> = selection.targets.kernel.iter().filter(|kernel| is_path(kernel)).cloned().collect();
    let kernel = Some(kernels.join(",")).filter(|kernel| !kernel.is_empty());
    let mut args: Vec<(&str, String)> = kernel.map(|kernel| ("--kernel", kernel)).into_iter().collect();
    args.extend(selection.targets.modules.as_deref().map(|modules| ("--modules", path(modules))));
    let of_arch = |(arch, tree): &(Arch, PathBuf)| ("--ior", format!("{arch}={}", tree.display()));
    args.extend(arguments.execution.overlays.ior.iter().map(of_arch));
    args.extend(selection.measure.model.as_ref().map(|model| ("--model", model.name.clone())));
    args.extend(selection.tool.iter().map(|tool| ("--tool", tool.clone())));
    args.extend(arguments.execution.overlays.bundle.as_deref().map(|bundle| ("--bundle", path(bundle))));
    args.extend(arguments.execution.overlays.manifest.as_deref().map(|manifest| ("--manifest", path(manifest))));
    args.extend(arguments.execution.qemu.qemu.map(|source| ("--qemu", source.to_string())));
    args.extend(global.packages.catalogue.as_deref().map(|catalogue| ("--catalogue", path(catalogue))));
    args.extend(global.cache.as_deref().map(|cache| ("--cache", path(cache))));
    let mut args: Vec<String> = args.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect();
    if arguments.execution.overlays.available {
        args.push("--available".to_owned());
    }
    args
}

/// Returns the exit code of the results; `paused` tells that blocks were left because the host
/// failed.
fn verdict(results: &Results, paused: bool) -> u8 {
    match conclusion(results) {
        Conclusion::Regression => REGRESSION,
        Conclusion::Unexpected => UNEXPECTED,
        Conclusion::Unfinished => INFRASTRUCTURE,
        _ if paused => INFRASTRUCTURE,
        Conclusion::Inconclusive => INCONCLUSIVE,
        Conclusion::AsExpected => SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_results::{
        FailureKind, JOURNAL_VERSION, JournalContents, JournalEntry, JournalHeader, Outcome as RunOutcome, Provenance,
        RunFailure, RunRecord,
    };
    use bpfassay_study::{Available, Block, Narrowing};

    use super::*;

    /// Creates results of a study whose first run failed by each of `kinds` in turn.
    fn failed(kinds: &[FailureKind]) -> Results {
        let mut study = bpfassay_study::load("quick").unwrap();
        study.design.replicates = u32::try_from(kinds.len().max(1)).unwrap();
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        let record = |(block, &kind): (&Block, &FailureKind)| {
            let failure = RunFailure { kind, phase: None, excerpt: Vec::new(), log: None, after: None };
            let outcome = RunOutcome::Failed(failure);
            JournalEntry::Run(Box::new(RunRecord::new(block, &block.runs[0], 1, 0, 0, outcome)))
        };
        let entries = plan.blocks.iter().zip(kinds).map(record).collect();
        let header =
            JournalHeader { journal: JOURNAL_VERSION, started_unix_ms: 0, plan, provenance: Provenance::default() };
        bpfassay_report::derive(&JournalContents { header, entries, torn: None, digest: None })
    }

    #[test]
    fn a_run_without_a_figure_of_its_workload_did_not_end_as_expected() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/quick");
        let mut results = file::read(&folder).unwrap();
        assert_eq!(verdict(&results, false), SUCCESS);
        results.cells[1].metrics[0].value = bpfassay_results::Figure::missing("IOR's summary is not valid");
        assert_eq!(verdict(&results, false), UNEXPECTED);
    }

    #[test]
    fn the_last_line_agrees_with_the_exit_code() {
        let of = |code| last_line(Path::new("my results/quick"), code);
        assert_eq!(of(Some(SUCCESS)), "results, as expected: bpfassay report 'my results/quick'\n");
        for code in [REGRESSION, UNEXPECTED, INCONCLUSIVE, INFRASTRUCTURE, INTERRUPTED] {
            let line = of(Some(code));
            assert!(line.starts_with("results, ") && !line.contains(", as expected"), "{code}: {line}");
        }
        assert_eq!(of(None), "results: bpfassay report 'my results/quick'\n");
    }

    #[test]
    fn where_nothing_but_the_host_failed_no_tool_is_blamed_by_the_exit_code() {
        // Nothing was measured.
        assert_eq!(verdict(&failed(&[]), false), INFRASTRUCTURE);
        assert_eq!(verdict(&failed(&[]), true), INFRASTRUCTURE, "blocks were left");
        assert_eq!(verdict(&failed(&[FailureKind::Host]), false), INFRASTRUCTURE);
        for kind in [FailureKind::Panic, FailureKind::NotTried, FailureKind::Unsound] {
            assert_eq!(verdict(&failed(&[FailureKind::Host, kind]), false), UNEXPECTED);
        }
    }
}

//! `bpfassay run`: run a study.

use std::path::{Path, PathBuf};

use bpfassay_protocol::Arch;
use bpfassay_report::{render, to_do};
use bpfassay_results::{
    Again, Contents, Entry, Event, FailureKind, Header, JOURNAL_VERSION, Journal, Outcome as RunOutcome, Provenance,
    Results, RunFailure, ToDo, event::Concluded, file,
};
use bpfassay_runner::{Summary, unix_ms};
use bpfassay_stats::Verdict;
use bpfassay_study::{Block, Clock, Plan};
use bpfassay_vm::shell_words;

use crate::{
    chosen::{Chosen, is_image},
    cli::{self, MessageFormat},
    exit::{Failure, INCONCLUSIVE, INFRASTRUCTURE, INTERRUPTED, Outcome, REGRESSION, SUCCESS, UNEXPECTED, USAGE},
    output,
    progress::{self, Reporting, bundled},
    session::{Session, check_ids},
    setup::{self, Store},
};

pub(crate) async fn run(arguments: cli::Run, global: &cli::Global) -> Outcome {
    let resumed = match &arguments.resume {
        Some(directory) => Some(with_guests(directory)?),
        None => None,
    };
    let chosen = match &resumed {
        Some(_) => Chosen::default(),
        None => Chosen::read(&arguments.selection)?,
    };
    let mut plan = match &resumed {
        Some((_, contents)) => contents.header.plan.clone(),
        None => setup::expand(&chosen, &arguments.overlays, arguments.selection.clock, global)?,
    };
    if let Some(directory) = &arguments.output {
        // Before the minutes that setting up may take.
        Journal::may_create(directory)?;
    }
    let store = Store::open(global)?;
    setup::host_packages(&plan, setup::needed(&store, &chosen, &arguments.overlays)?, global)?;
    let begun_with = match &resumed {
        Some((journal, contents)) if arguments.overlays.manifest.is_none() && arguments.overlays.ior.is_empty() => {
            setup::recorded(&contents.header.provenance, journal.path(), &plan)?
        }
        _ => None,
    };
    let testbed = match begun_with {
        Some(testbed) => testbed,
        None => setup::testbed(&store, &chosen, &arguments.overlays, &plan, setup::Shell::Without)?,
    };
    let session = Session::set_up(&store, testbed, &plan, arguments.accelerator, arguments.jobs).await?;
    if resumed.is_none() && plan.study.clock_of_host && session.has_kvm() {
        plan = setup::expand(&chosen, &arguments.overlays, Some(Clock::Wall), global)?;
    }
    let provenance = session.provenance.clone();

    let mut never_ready = Vec::new();
    let (directory, journal, blocks) = match resumed {
        Some((mut journal, contents)) => {
            let directory = arguments.resume.clone().unwrap_or_default();
            let blocks = to_do(&contents, again(arguments.again));
            never_ready = given_up(&contents, &blocks);
            if !blocks.is_empty() {
                let entry = Entry::Resumed { at_unix_ms: unix_ms(), provenance: Box::new(provenance) };
                journal.append(&entry)?;
            }
            (directory, journal, blocks)
        }
        None => begin(&plan, arguments.output.as_deref(), provenance)?,
    };
    let study = if arguments.resume.is_some() { bundled(&plan) } else { Some(arguments.selection.study.as_str()) };
    let overlays = overlays(&arguments, global);
    let reporting = Reporting { study, overlays: &overlays, format: arguments.message_format, here: None };
    let summary = until_narrow(&plan, &directory, journal, blocks, async |blocks, journal| {
        session.execute(&plan, blocks, never_ready.clone(), journal, &directory, reporting).await
    })
    .await?;
    let how_to_go_on = format!("; go on with: bpfassay run --resume {}", shell_words([&directory]));
    report(&directory, &End { summary, how_to_go_on }, arguments.message_format)
}

/// What is done again of what ended badly.
const fn again(asked: cli::AgainChoice) -> Again {
    match asked {
        cli::AgainChoice::Host => Again::Host,
        cli::AgainChoice::Failed => Again::Failed,
    }
}

/// The blocks that were given up because no guest of theirs was ever ready, but for those that are to be done again.
fn given_up(contents: &Contents, blocks: &[ToDo]) -> Vec<(Block, RunFailure)> {
    let standing = contents.standing();
    let is_left = |block: &&Block| blocks.iter().all(|todo| todo.block.id != block.id);
    let all = contents.header.plan.blocks.iter().filter(is_left);
    all.filter_map(|block| Some((block.clone(), standing.past(block).never_ready()?.clone()))).collect()
}

/// How the run ended.
pub(super) struct End {
    /// What it came to.
    pub(super) summary: Summary,
    /// What to say of how to go on, where something is left to do.
    pub(super) how_to_go_on: String,
}

/// What was begun in `directory`, if it was begun with guests: what a machine itself was measured to do, no guest goes on with.
fn with_guests(directory: &Path) -> Result<(Journal, Contents), Failure> {
    let (journal, contents) = Journal::resume(directory)?;
    if contents.header.provenance.is_without_guests() {
        let help = "begin again with `bpfassay here`, in another directory; `bpfassay report` shows what was measured";
        let report = miette::miette!(
            help = help,
            "cannot go on with {}: it was begun by `bpfassay here`, without guests",
            directory.display()
        );
        return Err(Failure { code: USAGE, report });
    }
    check_ids(&contents.header.plan)?;
    Ok((journal, contents))
}

/// What there is to go on with: the results directory, its journal, and the blocks that are left to do.
pub(super) type Begun = (PathBuf, Journal, Vec<ToDo>);

/// Begins `plan` in the results directory `output`, or one with a name of its own.
pub(super) fn begin(plan: &Plan, output: Option<&Path>, provenance: Provenance) -> Result<Begun, Failure> {
    let started_unix_ms = unix_ms();
    let directory = output.map_or_else(|| default_directory(plan, started_unix_ms), Path::to_owned);
    let header = Header { journal: JOURNAL_VERSION, started_unix_ms, plan: plan.clone(), provenance };
    let journal = Journal::create(&directory, &header)?;
    let blocks = to_do(&Contents::read(&directory)?, Again::Nothing);
    Ok((directory, journal, blocks))
}

/// Has `execute` do `blocks`, and then whatever sequential sampling asks for: what was measured decides whether there is more to
/// do. Where boots are fixed there is not.
pub(super) async fn until_narrow(
    plan: &Plan,
    directory: &Path,
    mut journal: Journal,
    mut blocks: Vec<ToDo>,
    execute: impl AsyncFn(Vec<ToDo>, Journal) -> Result<Summary, Failure>,
) -> Result<Summary, Failure> {
    loop {
        let summary = execute(blocks, journal).await?;
        if summary.cancelled || summary.paused.is_some() || plan.until().is_none() {
            return Ok(summary);
        }
        let contents;
        (journal, contents) = Journal::resume(directory)?;
        blocks = to_do(&contents, Again::Nothing);
        if blocks.is_empty() {
            return Ok(summary);
        }
    }
}

/// Derives the results in `directory` and prints them, with what is left to do.
pub(super) fn report(directory: &Path, end: &End, format: MessageFormat) -> Outcome {
    let End { summary: Summary { cancelled, paused, .. }, how_to_go_on } = end;
    let (results, fingerprint) = conclude(directory)?;
    let code = if *cancelled { INTERRUPTED } else { verdict(&results, paused.is_some()) };
    let path = directory.join(file::FILE_NAME);
    match format {
        MessageFormat::Human => {
            let width = super::terminal_width();
            let mut text = render::text(&results, render::Style { width });
            if let Some(fingerprint) = fingerprint {
                text.push_str(&format!("fingerprint of the raw figures: {fingerprint}\n"));
            }
            text.push_str(&format!("results: {}\n", output::path(&path)));
            let failed_by_host = results.runs.iter().filter(|run| is_of_host(&run.record.outcome)).count();
            if *cancelled {
                text.push_str(&format!("interrupted{how_to_go_on}\n"));
            } else if let Some(why) = paused {
                text.push_str(&format!("{why}{how_to_go_on}\n"));
            } else if failed_by_host > 0 {
                text.push_str(&format!("host failure: {failed_by_host} runs were not measured{how_to_go_on}\n"));
            }
            super::print(&text)?;
        }
        MessageFormat::Json => {
            let count = |verdict| results.gates.iter().filter(|gate| gate.verdict == verdict).count() as u64;
            progress::conclude(&Event::Concluded(Concluded {
                results: path,
                passes: count(Verdict::Pass),
                regressions: count(Verdict::Regression),
                inconclusive: count(Verdict::Inconclusive),
                fingerprint,
                exit_code: code,
            }))?;
        }
    }
    Ok(code)
}

/// Options that another command needs to find the same guests, as arguments.
fn overlays(arguments: &cli::Run, global: &cli::Global) -> Vec<String> {
    let path = |path: &Path| path.display().to_string();
    let selection = &arguments.selection;
    let images = selection.kernel.iter().filter(|kernel| is_image(kernel)).cloned();
    let mut args: Vec<(&str, String)> = images.map(|image| ("--kernel", image)).collect();
    args.extend(selection.modules.as_deref().map(|modules| ("--modules", path(modules))));
    let of_arch = |(arch, tree): &(Arch, PathBuf)| ("--ior", format!("{arch}={}", tree.display()));
    args.extend(arguments.overlays.ior.iter().map(of_arch));
    args.extend(selection.tool.iter().map(|tool| ("--tool", tool.clone())));
    args.extend(arguments.overlays.manifest.as_deref().map(|manifest| ("--manifest", path(manifest))));
    args.extend(global.cache.as_deref().map(|cache| ("--cache", path(cache))));
    let mut args: Vec<String> = args.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect();
    if arguments.overlays.available {
        args.push("--available".to_owned());
    }
    args
}

/// Derives the results from the journal and writes `results.json`. The fingerprint goes with them where raw figures are the
/// same everywhere.
fn conclude(directory: &Path) -> Result<(Results, Option<String>), Failure> {
    let results = bpfassay_report::derive_all(Contents::read(directory)?);
    file::write(directory, &results).map_err(Failure::infrastructure)?;
    let is_counted = results.plan.study.clock == Clock::Instructions;
    let fingerprint =
        is_counted.then(|| bpfassay_results::fingerprint(results.runs.iter().map(|run| &run.record)).to_string());
    Ok((results, fingerprint))
}

/// What the results come to: what is known to be broken first, then what went wrong, then what is not known. `paused`: whether
/// blocks were left because the host failed.
fn verdict(results: &Results, paused: bool) -> u8 {
    let any = |verdict: Verdict| results.gates.iter().any(|gate| gate.verdict == verdict);
    if any(Verdict::Regression) {
        REGRESSION
    } else if !as_expected(results) {
        UNEXPECTED
    } else if paused || results.runs.iter().any(|run| is_of_host(&run.record.outcome)) {
        INFRASTRUCTURE
    } else if any(Verdict::Inconclusive) {
        INCONCLUSIVE
    } else {
        SUCCESS
    }
}

/// Whether the host failed the run, which says nothing of what is under test.
fn is_of_host(outcome: &RunOutcome) -> bool {
    matches!(outcome, RunOutcome::Failed(failure) if failure.kind == FailureKind::Host)
}

/// Whether every planned run was measured, failed by the host, or was refused as the study expects, and every feature came out as
/// expected.
fn as_expected(results: &Results) -> bool {
    let failed = |outcome: &RunOutcome| matches!(outcome, RunOutcome::Failed(_)) && !is_of_host(outcome);
    results.runs.iter().all(|run| !failed(&run.record.outcome))
        && results.cells.iter().all(|cell| !cell.attach.is_surprise())
        && results.kernel_features.iter().all(|matrix| matrix.surprises().next().is_none())
}

fn default_directory(plan: &Plan, unix_ms: u64) -> PathBuf {
    Path::new("bpfassay-results").join(format!("{}-{}", plan.study.name, unix_ms / 1000))
}

#[cfg(test)]
mod tests {
    use bpfassay_results::{
        RunRecord,
        provenance::{Artefact, HostFacts},
    };
    use bpfassay_study::{Available, Narrowing};

    use super::*;

    /// Results of a study whose first run failed by each of `kinds` in turn.
    fn failed(kinds: &[FailureKind]) -> Results {
        let mut study = bpfassay_study::load("quick").unwrap();
        study.design.replicates = u32::try_from(kinds.len().max(1)).unwrap();
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        let record = |(block, &kind): (&Block, &FailureKind)| {
            let failure = RunFailure { kind, phase: None, excerpt: Vec::new(), log: None, after: None };
            let outcome = RunOutcome::Failed(failure);
            Entry::Run(Box::new(RunRecord::new(block, &block.runs[0], 1, 0, 0, outcome)))
        };
        let entries = plan.blocks.iter().zip(kinds).map(record).collect();
        let host = HostFacts {
            machine: String::new(),
            kernel_release: String::new(),
            cpu_model: String::new(),
            cpus: 1,
            memory_kib: 1,
            jobs: 1,
        };
        let provenance = Provenance {
            bpfassay: Artefact { name: String::new(), version: String::new(), sha256: None },
            host,
            qemu: Default::default(),
            targets: Vec::new(),
            manifest: serde_json::Value::Null,
        };
        let header = Header { journal: JOURNAL_VERSION, started_unix_ms: 0, plan, provenance };
        bpfassay_report::derive(&Contents { header, entries, torn: None, digest: None })
    }

    #[test]
    fn where_nothing_but_the_host_failed_no_tool_is_blamed_by_the_exit_code() {
        assert_eq!(verdict(&failed(&[]), false), SUCCESS);
        assert_eq!(verdict(&failed(&[]), true), INFRASTRUCTURE, "blocks were left");
        assert_eq!(verdict(&failed(&[FailureKind::Host]), false), INFRASTRUCTURE);
        for kind in [FailureKind::Panic, FailureKind::NotTried, FailureKind::Unsound] {
            assert_eq!(verdict(&failed(&[FailureKind::Host, kind]), false), UNEXPECTED);
        }
    }
}

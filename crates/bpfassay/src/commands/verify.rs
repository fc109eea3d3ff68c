//! `bpfassay verify`: re-execute part of a run; fails unless every raw figure matches.

use std::path::Path;

use bpfassay_results::{
    Again, Contents, Entry, Header, JOURNAL_VERSION, Journal, ToDo,
    fingerprint::{RecordDifference, difference},
    plain,
};
use bpfassay_runner::unix_ms;
use bpfassay_study::{Block, Clock, Plan};

use crate::{
    chosen::Chosen,
    cli,
    exit::{Failure, INFRASTRUCTURE, INTERRUPTED, NOT_REPRODUCED, Outcome, SUCCESS, USAGE},
    output,
    progress::{Reporting, bundled},
    provenance,
    session::{Session, check_ids},
    setup::{self, Store, Testbed},
};

/// Differences that are shown one by one.
const SHOWN: usize = 20;

pub(crate) async fn verify(arguments: cli::Verify, global: &cli::Global) -> Outcome {
    let contents = Contents::read(&arguments.directory)?;
    check_ids(&contents.header.plan)?;
    let blocks = choose(&contents, arguments.sample)?;
    let runs: usize = blocks.iter().map(|block| block.runs.len()).sum();
    let plan = contents.header.plan.with_blocks(blocks);
    let provider = contents.header.provenance.manifest["provider"]["name"].as_str().unwrap_or_default();
    setup::host_packages(&plan, bpfassay_testbed::provider::host_packages(provider), global)?;
    let store = Store::open(global)?;
    let testbed = same_testbed(&store, &contents, &arguments.directory, &plan)?;
    let session = Session::set_up(&store, testbed, &plan, bpfassay_vm::AcceleratorWish::Tcg, arguments.jobs).await?;
    let provenance = session.provenance.clone();

    let again = tempfile::Builder::new().prefix("bpfassay-verify-").tempdir().map_err(|error| {
        failure(INFRASTRUCTURE, "free some space there", &format!("cannot make a temporary directory: {error}"))
    })?;
    let directory = again.path().join("results");
    let header = Header { journal: JOURNAL_VERSION, started_unix_ms: unix_ms(), plan: plan.clone(), provenance };
    let journal = Journal::create(&directory, &header)?;
    let todo = plan.blocks.iter().cloned().map(ToDo::fresh).collect();
    let reporting = Reporting { study: bundled(&plan), overlays: &[], format: cli::MessageFormat::Human, here: None };
    let summary = session.execute(&plan, todo, Vec::new(), journal, &directory, reporting).await?;
    if summary.cancelled {
        super::print("interrupted; nothing is said of the figures\n")?;
        return Ok(INTERRUPTED);
    }

    let repeated = Contents::read(&directory)?;
    if let Some(block) = repeated.to_do(Again::Host).first() {
        let message = format!("host failure in block {}: nothing is said of the figures", block.block.id);
        return Err(failure(INFRASTRUCTURE, "see the messages above; then verify again", &message));
    }
    let (first, second) = (contents.records(), repeated.records());
    let differences: Vec<RecordDifference> = plan
        .blocks
        .iter()
        .flat_map(|block| &block.runs)
        .filter_map(|run| {
            let run = run.spec.id.as_str();
            match (first.get(run), second.get(run)) {
                (Some(first), Some(second)) => difference(first, second),
                (first, second) => Some(RecordDifference {
                    run: run.to_owned(),
                    place: String::new(),
                    first: first.map(|_| "a record".to_owned()),
                    second: second.map(|_| "a record".to_owned()),
                }),
            }
        })
        .collect();
    let of = format!("{} of {} boots, {runs} runs", plan.blocks.len(), contents.header.plan.blocks.len());
    if differences.is_empty() {
        super::print(&format!("verified: {of}: identical raw figures\n"))?;
        return Ok(SUCCESS);
    }
    let kept = again.keep();
    super::print(&differences_text(&differences, &of, &kept.join("results")))?;
    Ok(NOT_REPRODUCED)
}

fn differences_text(differences: &[RecordDifference], of: &str, kept: &Path) -> String {
    let mut text = format!("not reproduced: {of}: {} runs have other raw figures\n", differences.len());
    for RecordDifference { run, place, first, second } in differences.iter().take(SHOWN) {
        let show = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
        let line = format!("{run}: at {place}: {} before, {} now", show(first), show(second));
        text.push_str(&format!("  {}\n", plain::line(&line)));
    }
    if differences.len() > SHOWN {
        text.push_str(&format!("  and {} more\n", differences.len() - SHOWN));
    }
    text.push_str(&format!("what was measured now is kept in {}\n", output::path(kept)));
    text
}

/// The blocks to re-execute: those that came to their end, of which `sample` are taken evenly over the
/// plan.
fn choose(contents: &Contents, sample: Option<u32>) -> Result<Vec<Block>, Failure> {
    let plan = &contents.header.plan;
    if plan.study.clock != Clock::Instructions {
        return Err(failure(
            USAGE,
            "run the study with --clock instructions",
            "figures by the wall clock never come out the same: there is nothing to verify",
        ));
    }
    if contents
        .entries
        .iter()
        .any(|entry| matches!(entry, Entry::Resumed { provenance, .. } if **provenance != contents.header.provenance))
    {
        return Err(failure(
            USAGE,
            "verify a run that was done in one go",
            "this run was taken up again with another testbed or on another host: which figures came of which is not recorded",
        ));
    }
    let standing = contents.standing();
    let is_whole = |block: &&Block| block.runs.iter().all(|run| standing.is_final(&run.spec.id));
    let whole: Vec<&Block> = plan.blocks.iter().filter(is_whole).collect();
    if whole.is_empty() {
        return Err(failure(
            USAGE,
            "go on with it first: bpfassay run --resume DIR",
            "no block of this run came to its end: there is nothing to verify",
        ));
    }
    let wanted = sample.map_or(whole.len(), |sample| usize::try_from(sample).unwrap_or(usize::MAX)).min(whole.len());
    Ok((0..wanted).filter_map(|index| whole.get(index * whole.len() / wanted)).map(|&block| block.clone()).collect())
}

/// The guests that the run was done with, or the same made again.
fn same_testbed(store: &Store, contents: &Contents, directory: &Path, plan: &Plan) -> Result<Testbed, Failure> {
    let recorded = &contents.header.provenance;
    if let Some(testbed) = setup::recorded(recorded, directory, plan)? {
        return Ok(testbed);
    }
    let overlays = cli::Overlays { ior: Vec::new(), manifest: None, available: false };
    let testbed = setup::testbed(store, &Chosen::default(), &overlays, plan, setup::Shell::Without)?;
    let now = provenance::targets(&testbed.manifest, plan);
    let then: Vec<_> =
        recorded.targets.iter().filter(|made| plan.targets().iter().any(|target| **target == made.target)).collect();
    if now.iter().collect::<Vec<_>>() != then {
        return Err(failure(
            INFRASTRUCTURE,
            "use the bpfassay and the kernel packages that made it; results.json lists them under provenance",
            "the guests of this run are gone, and those that can be made now are others",
        ));
    }
    Ok(testbed)
}

fn failure(code: u8, help: &str, message: &str) -> Failure {
    Failure { code, report: miette::miette!(help = help, "{}", message) }
}

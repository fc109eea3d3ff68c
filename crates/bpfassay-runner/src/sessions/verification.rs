// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes a run again to find out whether it gives the same figures.

#![allow(clippy::disallowed_methods, reason = "joins a fixed name to a scratch directory")]

use std::{
    io,
    path::{Path, PathBuf},
};

use bpfassay_results::{
    Again, JOURNAL_VERSION, Journal, JournalContents, JournalEntry, JournalError, JournalHeader, ResultsError, ToDo,
    file,
    fingerprint::{RecordDifference, difference},
};
use bpfassay_study::{Block, Clock, Plan, Shard};
use tokio_util::sync::CancellationToken;

use crate::{
    blocks::block_store::{BlockStore, StoreKey},
    boot::run_context::unix_ms,
    error::Error,
    observer::Observer,
    sessions::{
        plan_testbed::Testbed,
        same_guests::{MeasuredRun, host_packages},
        session::Session,
        work::check_ids,
    },
    this_host::{qemu_source::QemuSource, run_provenance, runner_store::Store},
};

/// A run whose figures are to be measured again.
#[derive(Debug)]
pub struct Verification {
    directory: PathBuf,
    contents: JournalContents,
    plan: Plan,
}

/// The result of a verification.
#[derive(Debug)]
pub enum VerifyOutcome {
    /// The raw figures of all runs are the same.
    Same,
    /// Some raw figures differ.
    Different {
        /// One element for each run with different figures.
        differences: Vec<RecordDifference>,
        /// The results directory of the verification.
        kept: PathBuf,
    },
    /// The verification was cancelled.
    Cancelled,
}

impl Verification {
    /// Reads the run in the results directory `directory`, or published results without a journal.
    /// Complete blocks can be verified: `sample` of them, evenly distributed over the plan, or all.
    ///
    /// # Errors
    /// - [`Error::Journal`] and [`Error::BlockId`] if the journal cannot be used.
    /// - [`Error::Published`] if there is no journal and the results cannot be read.
    /// - [`Error::WallClock`], [`Error::Continued`], [`Error::NothingComplete`] if nothing can be
    ///   verified.
    pub fn new(directory: &Path, sample: Option<u32>) -> Result<Self, Error> {
        let contents = match JournalContents::read(directory) {
            Err(error) if is_missing(&error) => published(directory, error)?,
            contents => contents?,
        };
        check_ids(&contents.header.plan)?;
        let plan = contents.header.plan.with_blocks(choose(&contents, sample)?);
        Ok(Self { directory: directory.to_owned(), contents, plan })
    }

    /// Reads the block that `store` has under `key`; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::BlockStore`] if the entry is damaged or cannot be read, [`Error::BlockId`],
    /// [`Error::WallClock`].
    pub fn of_block(store: &BlockStore, key: &StoreKey) -> Result<Option<Self>, Error> {
        let Some(contents) = store.kept(key)? else { return Ok(None) };
        check_ids(&contents.header.plan)?;
        let plan = contents.header.plan.with_blocks(choose(&contents, None)?);
        Ok(Some(Self { directory: store.entry(key), contents, plan }))
    }

    /// Returns whether this very program measured the run.
    #[must_use]
    pub fn is_of_this_program(&self, store: &Store) -> bool {
        run_provenance::this_program(&store.cache) == self.contents.header.provenance.bpfassay
    }

    /// The plan to execute again.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Number of boots of the run or its shard, including those that are not executed again.
    #[must_use]
    pub fn boots(&self) -> usize {
        self.contents.header.plan.measured_blocks().len()
    }

    /// The shard that was measured; `None` for the whole plan.
    #[must_use]
    pub fn shard(&self) -> Option<Shard> {
        self.contents.header.plan.shard
    }

    /// The source of the run's QEMU, if it is known.
    #[must_use]
    pub fn qemu(&self) -> Option<QemuSource> {
        QemuSource::of(&self.contents.header.provenance)
    }

    /// Returns the Debian packages, except QEMU, that this host needs to make the guests again.
    #[must_use]
    pub fn host_packages(&self) -> &'static [&'static str] {
        host_packages(&self.contents.header.provenance)
    }

    /// Returns the guests of the run, built again if necessary, or the guests of `bundle`.
    ///
    /// # Errors
    /// - The errors of [`Testbed::recorded`] and [`Testbed::provide`].
    /// - [`Error::Testbed`] if the file is not a bundle, [`Error::NoGuest`] if it lacks a target.
    /// - [`Error::OtherGuests`] if its guests, or those that can be built now, differ.
    pub fn testbed(&self, store: &Store, bundle: Option<&Path>) -> Result<Testbed, Error> {
        let run = MeasuredRun { directory: &self.directory, recorded: &self.contents.header.provenance };
        match bundle {
            Some(bundle) => run.testbed_of_bundle(&self.plan, store, bundle),
            None => match run.testbed(&self.plan)? {
                Some(testbed) => Ok(testbed),
                None => run.made_again(&self.plan, store),
            },
        }
    }

    /// Executes the plan with `session`, which is set up for it, and compares all raw figures.
    ///
    /// # Errors
    /// - [`Error::VerifyHost`] if the host failed a block.
    /// - [`Error::Temporary`] if a temporary directory cannot be created.
    /// - [`Error::Journal`] if the new journal cannot be written or read.
    /// - [`Error::Runner`] if the host cannot start or supervise guests.
    pub async fn execute(
        &self,
        session: &Session,
        observer: &dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<VerifyOutcome, Error> {
        let plan = &self.plan;
        let again = tempfile::Builder::new().prefix("bpfassay-verify-").tempdir().map_err(Error::Temporary)?;
        let directory = again.path().join("results");
        let provenance = session.provenance().clone();
        let header =
            JournalHeader { journal: JOURNAL_VERSION, started_unix_ms: unix_ms(), plan: plan.clone(), provenance };
        let journal = Journal::create(&directory, &header)?;
        let todo = plan.blocks.iter().cloned().map(ToDo::fresh).collect();
        let summary = session.once(todo, Vec::new(), journal, &directory, observer, cancel).await?;
        if summary.cancelled {
            return Ok(VerifyOutcome::Cancelled);
        }
        let repeated = JournalContents::read(&directory)?;
        if let Some(todo) = repeated.to_do(Again::Host).first() {
            return Err(Error::VerifyHost(todo.block.id.clone()));
        }
        let differences = differences(plan, &self.contents, &repeated);
        Ok(match differences.is_empty() {
            true => VerifyOutcome::Same,
            false => VerifyOutcome::Different { differences, kept: again.keep().join("results") },
        })
    }
}

fn is_missing(error: &JournalError) -> bool {
    matches!(error, JournalError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// Reads the results in `directory`. `missing` is the error about the journal.
fn published(directory: &Path, missing: JournalError) -> Result<JournalContents, Error> {
    match file::read(directory) {
        Ok(results) => Ok(JournalContents::of_results(results)),
        Err(ResultsError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Err(missing.into()),
        Err(error) => Err(Error::Published(error)),
    }
}

/// Returns the runs of `plan` whose raw figures differ between `first` and `second`.
fn differences(plan: &Plan, first: &JournalContents, second: &JournalContents) -> Vec<RecordDifference> {
    let (first, second) = (first.records(), second.records());
    let runs = plan.blocks.iter().flat_map(|block| &block.runs).map(|run| run.spec.id.as_str());
    runs.filter_map(|run| match (first.get(run), second.get(run)) {
        (Some(first), Some(second)) => difference(first, second),
        (first, second) => Some(RecordDifference {
            run: run.to_owned(),
            place: String::new(),
            first: first.map(|_| "a record".to_owned()),
            second: second.map(|_| "a record".to_owned()),
        }),
    })
    .collect()
}

/// Selects `sample` of the complete blocks, evenly distributed over the plan, or all.
fn choose(contents: &JournalContents, sample: Option<u32>) -> Result<Vec<Block>, Error> {
    let header = &contents.header;
    if header.plan.study.clock != Clock::Instructions {
        return Err(Error::WallClock);
    }
    let is_other = |entry: &JournalEntry| matches!(entry, JournalEntry::Resumed { provenance, .. } if !header.provenance.has_same_guests(provenance));
    if contents.entries.iter().any(is_other) {
        return Err(Error::Continued);
    }
    let standing = contents.standing();
    let is_complete = |block: &&Block| block.runs.iter().all(|run| standing.is_final(&run.spec.id));
    let complete: Vec<&Block> = header.plan.blocks.iter().filter(is_complete).collect();
    if complete.is_empty() {
        return Err(Error::NothingComplete);
    }
    let count = complete.len();
    let wanted = sample.map_or(count, |sample| usize::try_from(sample).unwrap_or(usize::MAX)).min(count);
    Ok((0..wanted).filter_map(|index| complete.get(index * count / wanted)).map(|&block| block.clone()).collect())
}

#[cfg(test)]
mod tests {
    use bpfassay_results::fingerprint::fingerprint;

    use super::*;

    fn folder(study: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results").join(study)
    }

    #[test]
    fn published_results_are_verified_without_a_journal() {
        let all = Verification::new(&folder("quick"), None).unwrap();
        assert_eq!((all.plan().blocks.len(), all.boots()), (8, 8));
        assert_eq!(all.plan().study.name, "quick");
        let page = std::fs::read_to_string(folder("quick").join("README.md")).unwrap();
        let found = fingerprint(all.contents.records().into_values());
        assert!(page.contains(&format!("Fingerprint of its raw figures: `{found}`")), "{found}");
        let two = Verification::new(&folder("quick"), Some(2)).unwrap();
        assert_eq!((two.plan().blocks.len(), two.boots()), (2, 8));
        assert!(differences(two.plan(), &all.contents, &two.contents).is_empty());
    }

    #[test]
    fn a_directory_with_neither_is_refused_for_its_journal() {
        let empty = tempfile::tempdir().unwrap();
        let refused = Verification::new(empty.path(), None).unwrap_err();
        assert!(matches!(refused, Error::Journal(_)), "{refused}");
        std::fs::write(empty.path().join("results.json"), "{}").unwrap();
        let refused = Verification::new(empty.path(), None).unwrap_err();
        assert!(matches!(refused, Error::Published(_)), "{refused}");
    }
}

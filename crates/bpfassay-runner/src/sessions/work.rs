// SPDX-License-Identifier: MIT OR Apache-2.0
//! The remaining work of a plan, and its results directory, new or of an interrupted run.

use std::path::{Path, PathBuf};

use bpfassay_report::{StreamedError, to_do};
use bpfassay_results::{
    Again, JOURNAL_VERSION, Journal, JournalContents, JournalEntry, JournalError, JournalHeader, OpenDirectory,
    Provenance, Results, RunFailure, ToDo, plain, provenance::Artefact,
};
use bpfassay_study::{Block, Clock, Plan};

use crate::{
    boot::{run_context::unix_ms, tally::PoolSummary},
    error::Error,
    sessions::{plan_testbed::Testbed, results_directory},
    this_host::qemu_source::QemuSource,
};

/// Parent of the results directories, unless the user names a directory.
pub const DEFAULT_RESULTS: &str = "bpfassay-results";

/// The blocks to do, and the journal that records everything.
#[derive(Debug)]
pub struct PlannedWork {
    /// The results directory.
    pub directory: PathBuf,
    /// The journal of the run.
    pub journal: Journal,
    /// The blocks to do, each with its past.
    pub blocks: Vec<ToDo>,
    /// Blocks that were given up earlier because no guest was ever ready, with the failure.
    pub never_ready: Vec<(Block, RunFailure)>,
}

impl PlannedWork {
    /// Begins `plan` in the results directory `directory`, which must not have a journal yet. If it
    /// is `None`, makes `bpfassay-results/STUDY-TIME` (for a shard `STUDY-TIME-shard-K-of-N`), and
    /// points the link `bpfassay-results/latest` to it.
    ///
    /// # Errors
    /// [`Error::Journal`] if the directory has a journal already, or cannot be written.
    pub fn begin(plan: &Plan, directory: Option<&Path>, provenance: Provenance) -> Result<Self, Error> {
        let started_unix_ms = unix_ms();
        let header = JournalHeader { journal: JOURNAL_VERSION, started_unix_ms, plan: plan.clone(), provenance };
        let (directory, journal) = match directory {
            Some(directory) => (directory.to_owned(), Journal::create(directory, &header)?),
            None => {
                let begun = results_directory::begin(Path::new(DEFAULT_RESULTS), &header)?;
                results_directory::link_latest(&begun.0);
                begun
            }
        };
        let blocks = to_do(&JournalContents::read_in(journal.directory())?, Again::Nothing);
        Ok(Self { directory, journal, blocks, never_ready: Vec::new() })
    }

    /// Calls `execute` for the blocks, and again for blocks that sequential sampling adds, until
    /// the intervals are narrow enough. If the number of boots is fixed, it is called once.
    ///
    /// # Errors
    /// The errors of `execute`, and [`Error::Journal`].
    pub async fn until_narrow(
        self,
        plan: &Plan,
        execute: impl AsyncFn(Vec<ToDo>, Journal) -> Result<PoolSummary, Error>,
    ) -> Result<PoolSummary, Error> {
        let Self { directory: _, mut journal, mut blocks, never_ready: _ } = self;
        let directory = journal.directory().clone();
        loop {
            let summary = execute(blocks, journal).await?;
            if summary.cancelled || summary.paused.is_some() || plan.until().is_none() {
                return Ok(summary);
            }
            let contents;
            (journal, contents) = Journal::resume_in(directory.clone())?;
            blocks = to_do(&contents, Again::Nothing);
            if blocks.is_empty() {
                return Ok(summary);
            }
        }
    }
}

/// A run that was interrupted, to be continued.
#[derive(Debug)]
pub struct Interrupted {
    directory: PathBuf,
    journal: Journal,
    contents: JournalContents,
}

impl Interrupted {
    /// Opens the journal in `directory`, unless another process is writing it.
    ///
    /// # Errors
    /// - [`Error::Journal`] if the journal cannot be read, is damaged, or is in use.
    /// - [`Error::WithoutGuests`] for a run by `bpfassay here`.
    /// - [`Error::BlockId`] for a block whose id cannot be a file name.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let (journal, contents) = Journal::resume(directory)?;
        if contents.header.provenance.is_without_guests() {
            return Err(Error::WithoutGuests(directory.to_owned()));
        }
        check_ids(&contents.header.plan)?;
        Ok(Self { directory: directory.to_owned(), journal, contents })
    }

    /// The plan that the run was begun with.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.contents.header.plan
    }

    /// The source of the QEMU that the run was begun with, if it is known.
    #[must_use]
    pub fn qemu(&self) -> Option<QemuSource> {
        QemuSource::of(&self.contents.header.provenance)
    }

    /// Returns the guests that the run was begun with; `None` if they must be made again.
    ///
    /// # Errors
    /// The errors of [`Testbed::recorded`].
    pub fn testbed(&self) -> Result<Option<Testbed>, Error> {
        Testbed::recorded(&self.contents.header.provenance, self.journal.path(), self.plan())
    }

    /// Checks that `program`, this program, measured everything so far, unless no work is left
    /// under `again`. Figures of two programs cannot be combined.
    ///
    /// # Errors
    /// [`Error::OtherProgram`] if another program measured.
    pub fn check_program(&self, program: &Artefact, again: Again) -> Result<(), Error> {
        let resumed = self.contents.entries.iter().filter_map(|entry| match entry {
            JournalEntry::Resumed { provenance, .. } => Some(&provenance.bpfassay),
            _ => None,
        });
        let mut programs = std::iter::once(&self.contents.header.provenance.bpfassay).chain(resumed);
        match programs.find(|known| *known != program) {
            Some(other) if !to_do(&self.contents, again).is_empty() => {
                Err(Error::OtherProgram { began: described(other), this: described(program) })
            }
            _ => Ok(()),
        }
    }

    /// Returns what is left to do, including what `again` adds. Unless nothing is left, the journal
    /// records that the run is continued with `provenance`.
    ///
    /// # Errors
    /// The errors of [`Self::check_program`], and [`Error::Journal`] if the journal cannot be
    /// written.
    pub fn resume(self, again: Again, provenance: Provenance) -> Result<PlannedWork, Error> {
        self.check_program(&provenance.bpfassay, again)?;
        let Self { directory, mut journal, contents } = self;
        let blocks = to_do(&contents, again);
        let standing = contents.standing();
        let is_left = |block: &&Block| blocks.iter().all(|todo| todo.block.id != block.id);
        let given_up = contents.header.plan.blocks.iter().filter(is_left);
        let never_ready =
            given_up.filter_map(|block| Some((block.clone(), standing.past(block).never_ready()?.clone()))).collect();
        if !blocks.is_empty() {
            journal.append(&JournalEntry::Resumed { at_unix_ms: unix_ms(), provenance: Box::new(provenance) })?;
        }
        Ok(PlannedWork { directory, journal, blocks, never_ready })
    }
}

/// Returns a text like `0.1.0 with SHA-256 1a2b3c4d5e6f`.
fn described(program: &Artefact) -> String {
    let digest = program.sha256.as_deref().unwrap_or("unknown");
    plain::line(&format!("{} with SHA-256 {}", program.version, digest.get(..12).unwrap_or(digest))).into_owned()
}

/// Derives the results from the journal in `directory` and writes `results.json`.
///
/// Returns the results and, under the instruction clock, the fingerprint of the raw figures. The
/// returned results lack raw figures ([`bpfassay_report::Streamed`]). A page is made from results
/// that are read from `results.json`.
///
/// # Errors
/// [`Error::Journal`] if the journal cannot be read or is damaged, [`Error::Results`] if
/// `results.json` cannot be written.
pub fn conclude(directory: &Path) -> Result<(Results, Option<String>), Error> {
    let opened = OpenDirectory::open(directory).map_err(|source| JournalError::Io {
        action: "open",
        path: directory.to_owned(),
        source,
    })?;
    conclude_in(&opened)
}

/// Like [`conclude`], for an open results directory, as the journal of [`PlannedWork`] has it.
///
/// # Errors
/// The errors of [`conclude`].
pub fn conclude_in(directory: &OpenDirectory) -> Result<(Results, Option<String>), Error> {
    let streamed = bpfassay_report::derive_in(directory)?;
    streamed.write_in(directory).map_err(|error| match error {
        StreamedError::Journal(error) => Error::Journal(error),
        StreamedError::Results(error) => Error::Results(error),
    })?;
    let is_counted = streamed.results.plan.study.clock == Clock::Instructions;
    let fingerprint = is_counted.then(|| streamed.fingerprint()).transpose()?;
    Ok((streamed.results, fingerprint))
}

/// Longest id of a block, in bytes. It leaves room for the rest of a file name.
const LONGEST_ID: usize = 200;

/// Checks that the ids of the blocks of `plan` name files only in the directory where they are put.
/// Anybody may have written the journal that the plan comes from.
///
/// # Errors
/// [`Error::BlockId`] with the first invalid id.
pub fn check_ids(plan: &Plan) -> Result<(), Error> {
    let is_name = |id: &str| {
        let is_part = |c: char| c != '/' && !plain::is_hazard(c);
        (1..=LONGEST_ID).contains(&id.len()) && !id.starts_with('.') && id.chars().all(is_part)
    };
    match plan.blocks.iter().find(|block| !is_name(&block.id)) {
        None => Ok(()),
        Some(block) => Err(Error::BlockId(plain::excerpt(&block.id, LONGEST_ID))),
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_study::{Available, Narrowing};

    use super::*;

    /// `cluster merge` and a store of blocks refuse other programs, too.
    #[test]
    fn a_run_is_continued_by_the_program_that_began_it_alone() {
        let study = bpfassay_study::load("quick").unwrap();
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        let by = |sha256: &str| Provenance {
            bpfassay: Artefact {
                name: "bpfassay".to_owned(),
                version: "0.1.0".to_owned(),
                sha256: Some(sha256.to_owned()),
            },
            manifest: serde_json::json!({}),
            ..Provenance::default()
        };
        let work = tempfile::tempdir().unwrap();
        drop(PlannedWork::begin(&plan, Some(work.path()), by("a")).unwrap());
        let before = std::fs::read(work.path().join("journal.jsonl")).unwrap();
        let interrupted = || Interrupted::open(work.path()).unwrap();
        let error = interrupted().resume(Again::Nothing, by("b")).unwrap_err();
        assert!(matches!(&error, Error::OtherProgram { .. }), "{error}");
        assert!(
            error.to_string().contains("0.1.0 with SHA-256 a, and this is bpfassay 0.1.0 with SHA-256 b"),
            "{error}"
        );
        assert_eq!(std::fs::read(work.path().join("journal.jsonl")).unwrap(), before, "nothing was added");
        drop(interrupted().resume(Again::Nothing, by("a")).unwrap());
    }

    #[test]
    fn ids_of_blocks_name_files_where_they_are_put() {
        let study = bpfassay_study::load("ceems-ior").unwrap();
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        assert!(check_ids(&plan).is_ok());
        let long = "x".repeat(LONGEST_ID + 1);
        for id in ["../../evil", "/etc/cron.d/evil", "a/b", "..", ".hidden", "", "a\nb", "a\u{1b}[2J", "a\0b", &long] {
            let mut plan = plan.clone();
            plan.blocks[1].id = id.to_owned();
            assert!(matches!(check_ids(&plan), Err(Error::BlockId(_))), "{id:?}");
        }
    }
}

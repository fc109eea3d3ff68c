// SPDX-License-Identifier: MIT OR Apache-2.0
//! Merges the results directories of shards into one, as if one run had measured them all.

#![allow(
    clippy::disallowed_methods,
    reason = "makes the results directory that the user names, and moves nothing over what is there"
)]

mod combine;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
};

use bpfassay_report::{
    check_results::{Soundness, check},
    to_do,
};
use bpfassay_results::{Again, Journal, JournalContents, JournalEntry, JournalError, OpenDirectory, Results, plain};
use bpfassay_study::Plan;
use rustix::fs::{CWD, RenameFlags};

use self::combine::{ReadResults, combine};
use crate::{boot::run_context::LOGS, sessions::work};

/// Largest console log that is copied, in bytes: twice the limit for a guest.
const MAX_LOG: u64 = 8 << 20;

/// Highest number of boots in a message.
const SHOWN: usize = 8;

/// Why shards cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// No directory was named.
    #[error("no results directory to merge is named")]
    Nothing,
    /// The directory for the merged results exists.
    #[error("{} exists already: name a directory that does not, for the merged results", .0.display())]
    Exists(PathBuf),
    /// A directory is not as a run left it.
    #[error("{} cannot be merged: {what}: {message}", directory.display())]
    NotWhole {
        /// The results directory.
        directory: PathBuf,
        /// The faulty part.
        what: &'static str,
        /// The fault.
        message: String,
    },
    /// A results directory was measured without guests.
    #[error("{} was measured by `bpfassay here`, without guests, which has no shards", .0.display())]
    WithoutGuests(PathBuf),
    /// The results have different plans.
    #[error("{} and {} are of different plans{difference}: measure all shards of one study with the same options", first.display(), second.display())]
    OtherPlan {
        /// A results directory.
        first: PathBuf,
        /// Another one.
        second: PathBuf,
        /// The first difference: empty, or ` at PLACE: A in place of B`.
        difference: String,
    },
    /// The results have different guests, QEMUs or versions of this program.
    #[error("{} and {} were measured with different {what}: measure one of them again with what the other has", first.display(), second.display())]
    OtherGuests {
        /// A results directory.
        first: PathBuf,
        /// Another one.
        second: PathBuf,
        /// The differing part.
        what: String,
    },
    /// Two directories have the same block.
    #[error("{} and {} both have the block {block}: name each shard once", first.display(), second.display())]
    Twice {
        /// A results directory.
        first: PathBuf,
        /// Another one.
        second: PathBuf,
        /// The block's id.
        block: String,
    },
    /// A log cannot be copied.
    #[error("cannot take over the log {} of {}", plain::line(log), directory.display())]
    Log {
        /// The results directory.
        directory: PathBuf,
        /// The log's name in the journal.
        log: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Some boots are in no directory.
    #[error("{} of {planned} boots are missing: {}", missing.len(), named(missing))]
    Missing {
        /// The ids of the missing blocks.
        missing: Vec<String>,
        /// Number of boots in the plan.
        planned: usize,
    },
    /// The merged results cannot be written.
    #[error("cannot write the merged results to {}", path.display())]
    Write {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The results cannot be derived, or an id cannot name a file.
    #[error(transparent)]
    Conclude(#[from] Box<crate::error::Error>),
}

/// Lists the first of `blocks`, and the number of the others.
fn named(blocks: &[String]) -> String {
    let mut text = blocks.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if blocks.len() > SHOWN {
        text.push_str(&format!(" and {} more", blocks.len() - SHOWN));
    }
    text
}

/// Shards of one study that fit together.
#[derive(Debug)]
pub struct Merge {
    contents: JournalContents,
    /// The results directory of each log, by the log's path in it.
    logs: BTreeMap<String, PathBuf>,
    missing: Vec<String>,
}

impl Merge {
    /// Reads the results in `directories`, whose order makes no difference. Checks that the results
    /// are complete, have the same plan and the same guests, and have no boot in common.
    ///
    /// # Errors
    /// [`MergeError`] with what does not fit, and in which directories.
    pub fn read(directories: &[PathBuf]) -> Result<Self, MergeError> {
        let read = directories.iter().map(|directory| whole(directory)).collect::<Result<Vec<_>, _>>()?;
        let logs = logs(&read)?;
        let contents = combine(read)?;
        let missing = to_do(&contents, Again::Nothing).into_iter().map(|todo| todo.block.id).collect();
        Ok(Self { contents, logs, missing })
    }

    /// The plan of all shards.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.contents.header.plan
    }

    /// The blocks that no directory has completely.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Returns `self` if nothing is missing.
    ///
    /// # Errors
    /// [`MergeError::Missing`] if blocks are missing.
    pub fn complete(self) -> Result<Self, MergeError> {
        match self.missing.is_empty() {
            true => Ok(self),
            false => Err(MergeError::Missing { planned: self.plan().blocks.len(), missing: self.missing }),
        }
    }

    /// Checks whether merged results can be written to `directory`, without creating anything.
    ///
    /// # Errors
    /// [`MergeError::Exists`] if something has that name.
    pub fn may_write(directory: &Path) -> Result<(), MergeError> {
        match directory.symlink_metadata() {
            Ok(_) => Err(MergeError::Exists(directory.to_owned())),
            Err(_) => Ok(()),
        }
    }

    /// Writes the results directory `directory`, whole or not at all, with journal, logs and
    /// results as a run has them. Returns the results, and their fingerprint as in
    /// [`crate::conclude`].
    ///
    /// # Errors
    /// [`MergeError::Exists`] if something has that name. [`MergeError::Log`],
    /// [`MergeError::Write`], [`MergeError::Journal`] and [`MergeError::Conclude`] if something
    /// cannot be read or written.
    pub fn write(self, directory: &Path) -> Result<(Results, Option<String>), MergeError> {
        Self::may_write(directory)?;
        let failed = |source| MergeError::Write { path: directory.to_owned(), source };
        let absolute = std::path::absolute(directory).map_err(failed)?;
        let parent = absolute.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).map_err(failed)?;
        // The draft becomes the results directory, so it gets the mode of any new directory.
        let mode = fs::Permissions::from_mode(0o777);
        let draft = tempfile::Builder::new().prefix(".bpfassay-merge-").permissions(mode).tempdir_in(parent);
        let draft = draft.map_err(failed)?;
        let opened = OpenDirectory::open(draft.path()).map_err(failed)?;
        let mut journal = Journal::create_in(opened.clone(), &self.contents.header)?;
        journal.append_all(&self.contents.entries)?;
        drop(journal);
        let logs = opened.make_directory(LOGS).map_err(failed)?;
        for (log, from) in &self.logs {
            let bytes = bpfassay_input::read_beneath(from, Path::new(log), MAX_LOG)
                .map_err(|source| MergeError::Log { directory: from.clone(), log: log.clone(), source })?;
            // [`is_log`] has checked that it is a name in that directory.
            let name = Path::new(log).file_name().and_then(|name| name.to_str()).unwrap_or_default();
            logs.create_new(name).and_then(|mut file| file.write_all(&bytes)).map_err(failed)?;
        }
        let concluded = work::conclude_in(&opened).map_err(Box::new)?;
        logs.sync().and_then(|()| opened.sync()).map_err(failed)?;
        match rustix::fs::renameat_with(CWD, draft.path(), CWD, &absolute, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => return Err(MergeError::Exists(directory.to_owned())),
            // NFS and others lack this flag. Their rename replaces an empty directory at most.
            Err(rustix::io::Errno::INVAL) => fs::rename(draft.path(), &absolute).map_err(failed)?,
            Err(error) => return Err(failed(error.into())),
        }
        // The draft has its final name by now, and stays.
        let _ = draft.keep();
        fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
        Ok(concluded)
    }
}

/// Reads the results directory `directory` if it is as a run left it.
///
/// # Errors
/// [`MergeError`] if it is not.
fn whole(directory: &Path) -> Result<ReadResults, MergeError> {
    if let Some(wrong) = check(directory).into_iter().find(|checked| checked.soundness != Soundness::Sound) {
        let message = plain::line(&wrong.message).into_owned();
        return Err(MergeError::NotWhole { directory: directory.to_owned(), what: wrong.what, message });
    }
    let contents = JournalContents::read(directory)?;
    if contents.header.provenance.is_without_guests() {
        return Err(MergeError::WithoutGuests(directory.to_owned()));
    }
    work::check_ids(&contents.header.plan).map_err(Box::new)?;
    Ok(ReadResults { directory: directory.to_owned(), contents })
}

/// Finds the directory of each log.
///
/// # Errors
/// [`MergeError::Log`] for a log outside of the directory of logs, or in two directories.
fn logs(read: &[ReadResults]) -> Result<BTreeMap<String, PathBuf>, MergeError> {
    let mut logs = BTreeMap::new();
    for ReadResults { directory, contents } in read {
        for entry in &contents.entries {
            let JournalEntry::BlockStarted(started) = entry else { continue };
            let Some(log) = &started.log else { continue };
            let refuse = |problem: &str| {
                let source = io::Error::other(problem.to_owned());
                Err(MergeError::Log { directory: directory.clone(), log: plain::excerpt(log, 200), source })
            };
            if !is_log(log) {
                return refuse("it does not lie in the directory of logs");
            }
            match logs.insert(log.clone(), directory.clone()) {
                Some(other) if other != *directory => {
                    return refuse(&format!("{} names the same", plain::line(&other.display().to_string())));
                }
                _ => {}
            }
        }
    }
    Ok(logs)
}

/// Returns whether `log` names a file directly in the directory of logs.
fn is_log(log: &str) -> bool {
    let mut parts = Path::new(log).components();
    let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
    !log.chars().any(plain::is_hazard)
        && parts.next() == Some(Component::Normal(LOGS.as_ref()))
        && parts.next().is_some_and(is_name)
        && parts.next().is_none()
}

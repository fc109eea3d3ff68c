// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks a results directory: the journal and the results are intact, the results follow from the
//! journal, and the logs that they name exist.

use std::{
    collections::BTreeSet,
    io,
    path::{Component, Path},
};

use bpfassay_protocol::with_causes;
use bpfassay_results::{
    JournalContents, JournalError, OpenDirectory, Results, ResultsError, file,
    fingerprint::{fingerprint, first_difference},
    journal,
};

use crate::derive::derive_all;

/// The verdict of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Soundness {
    /// The part is intact.
    Sound,
    /// The part could not be read, so its state is unknown.
    Unreadable,
    /// The part is damaged or contradicts another part.
    Wrong,
}

/// One check and its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedItem {
    /// The checked part of the directory.
    pub what: &'static str,
    /// The verdict.
    pub soundness: Soundness,
    /// The checked property, or the fault with all causes.
    pub message: String,
}

impl CheckedItem {
    fn new(what: &'static str, soundness: Soundness, message: impl Into<String>) -> Self {
        Self { what, soundness, message: message.into() }
    }

    fn failed(what: &'static str, is_unreadable: bool, error: &dyn std::error::Error) -> Self {
        let soundness = if is_unreadable { Soundness::Unreadable } else { Soundness::Wrong };
        Self::new(what, soundness, with_causes(error))
    }
}

/// Checks the results directory `directory`: the journal, the results, whether the results follow
/// from the journal, and the logs.
#[must_use]
pub fn check(directory: &Path) -> Vec<CheckedItem> {
    let contents = JournalContents::read(directory);
    let sealed = file::sealed(directory);
    let mut checked = vec![match &sealed {
        Ok(sealed) if sealed.is_packed && is_missing(&contents) => of_published(sealed),
        _ => of_journal(directory, &contents),
    }];
    checked.push(match &sealed {
        Ok(sealed) => {
            let message = format!("as it was written: {} runs, digest {}", sealed.results.runs.len(), sealed.digest);
            CheckedItem::new(file::FILE_NAME, Soundness::Sound, message)
        }
        Err(ResultsError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => CheckedItem::new(
            file::FILE_NAME,
            Soundness::Wrong,
            "it does not exist: the run has not ended; continue with `bpfassay run --resume DIR`",
        ),
        Err(error) => CheckedItem::failed(file::FILE_NAME, matches!(error, ResultsError::Io { .. }), error),
    });
    let Ok(contents) = contents else { return checked };
    let derived = derive_all(contents);
    if let Ok(sealed) = &sealed {
        checked.push(follows(&derived, sealed));
    }
    checked.push(logs(directory, &derived));
    checked
}

fn is_missing(contents: &Result<JournalContents, JournalError>) -> bool {
    matches!(contents, Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound)
}

/// Reports the fingerprint of published results, which have no journal.
fn of_published(sealed: &file::Sealed) -> CheckedItem {
    let records = sealed.results.runs.iter().map(|run| &run.record);
    let message = format!(
        "published without it: whether the results follow from it, and logs, cannot be checked; fingerprint of their raw figures: {}",
        fingerprint(records)
    );
    CheckedItem::new(journal::FILE_NAME, Soundness::Sound, message)
}

fn of_journal(directory: &Path, contents: &Result<JournalContents, JournalError>) -> CheckedItem {
    match contents {
        Ok(contents) => {
            let lines = contents.digest.as_ref().map_or(0, |digest| digest.lines);
            let plan = &contents.header.plan;
            let mut message = format!(
                "{lines} lines, each with its sum; plan {} with {} runs in {} boots; every entry is of the plan",
                plan.digest,
                plan.runs().count(),
                plan.blocks.len()
            );
            if let Some(shard) = plan.shard {
                let boots = plan.measured_blocks().len();
                message.push_str(&format!("; {}, which has {boots} of the boots", shard.phrase()));
            }
            if let Some(torn) = &contents.torn {
                message.push_str(&format!(
                    "; line {} was not written to its end ({} bytes) and counts for nothing",
                    torn.line, torn.bytes
                ));
            }
            CheckedItem::new(journal::FILE_NAME, Soundness::Sound, message)
        }
        Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            let message = format!("{} has none: name the results directory of a run", directory.display());
            CheckedItem::new(journal::FILE_NAME, Soundness::Wrong, message)
        }
        Err(error) => CheckedItem::failed(journal::FILE_NAME, matches!(error, JournalError::Io { .. }), error),
    }
}

/// Checks that the results follow from the journal.
fn follows(derived: &Results, sealed: &file::Sealed) -> CheckedItem {
    const WHAT: &str = "results of the journal";
    let wrong = |message: String| CheckedItem::new(WHAT, Soundness::Wrong, message);
    let found = &sealed.results;
    // Results that this version wrote from this journal are identical byte for byte.
    match file::digest(derived) {
        Ok(digest) if digest == sealed.digest => {
            return CheckedItem::new(WHAT, Soundness::Sound, "every figure follows from the journal");
        }
        Ok(_) => {}
        Err(error) => return CheckedItem::failed(WHAT, false, &error),
    }
    if found.journal != derived.journal {
        let named = |digest: &Option<journal::JournalDigest>| match digest {
            Some(digest) => format!("{} lines that come to {}", digest.lines, digest.sum),
            None => "no journal".to_owned(),
        };
        return wrong(format!(
            "the results were made of {}; the journal has {}: make them again with `bpfassay run --resume DIR`",
            named(&found.journal),
            named(&derived.journal)
        ));
    }
    match differing(derived, found) {
        None => CheckedItem::new(WHAT, Soundness::Sound, "every figure follows from the journal"),
        Some(place) => wrong(format!(
            "{place}: make the results again with `bpfassay run --resume DIR`, or check them with the version of bpfassay that wrote them"
        )),
    }
}

/// Names the first place where the results differ from what was derived.
fn differing(derived: &Results, found: &Results) -> Option<String> {
    /// Compares the elements of two lists.
    fn of<T: PartialEq + serde::Serialize>(
        what: &str,
        name: impl Fn(&T) -> String,
        derived: &[T],
        found: &[T],
    ) -> Option<String> {
        if derived.len() != found.len() {
            return Some(format!(
                "{} {what} follow from the journal, and results.json has {}",
                derived.len(),
                found.len()
            ));
        }
        let (derived, found) = derived.iter().zip(found).find(|(derived, found)| derived != found)?;
        let place = first_difference(derived, found).unwrap_or_default();
        Some(format!("{what}, {}{place}", name(derived)))
    }
    let whole = |what: &str, is_same: bool| (!is_same).then(|| format!("{what} is another than the journal's"));
    let nameless = |_: &_| String::new();
    whole("the plan", derived.plan == found.plan)
        .or_else(|| whole("the time of the beginning", derived.started_unix_ms == found.started_unix_ms))
        .or_else(|| of("provenance", |_| String::new(), &derived.provenance, &found.provenance))
        .or_else(|| of("boots", |boot| format!("{} boot {}", boot.block, boot.boot), &derived.boots, &found.boots))
        .or_else(|| of("runs", |run| run.record.run.clone(), &derived.runs, &found.runs))
        .or_else(|| of("cells", |cell| cell.cell.clone(), &derived.cells, &found.cells))
        .or_else(|| of("gates", |gate| gate.cell.clone(), &derived.gates, &found.gates))
        .or_else(|| of("sampling", |_| String::new(), &derived.sampling, &found.sampling))
        .or_else(|| whole("the matrix of kernel features", derived.kernel_features == found.kernel_features))
        .or_else(|| of("notes", nameless, &derived.notes, &found.notes))
}

/// Checks that the logs of all completed boots exist.
fn logs(directory: &Path, derived: &Results) -> CheckedItem {
    const WHAT: &str = "logs";
    let named: BTreeSet<&str> = derived.boots.iter().filter_map(|boot| boot.log.as_deref()).collect();
    let mut missing = Vec::new();
    for log in &named {
        let is_within = Path::new(log).components().all(|part| matches!(part, Component::Normal(_)));
        if !is_within {
            return CheckedItem::new(WHAT, Soundness::Wrong, format!("{log} does not lie in the directory"));
        }
        match is_file(directory, log) {
            Ok(true) => {}
            Ok(false) => return CheckedItem::new(WHAT, Soundness::Wrong, format!("{log} is no regular file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(*log),
            Err(error) => {
                return CheckedItem::new(WHAT, Soundness::Unreadable, format!("cannot look at {log}: {error}"));
            }
        }
    }
    match missing.first() {
        None => CheckedItem::new(WHAT, Soundness::Sound, format!("{}, all there", named.len())),
        Some(first) => {
            let message = format!("{} of {} are missing, {first} first", missing.len(), named.len());
            CheckedItem::new(WHAT, Soundness::Wrong, message)
        }
    }
}

/// Returns whether `log` is a regular file below `directory`, reached without symbolic links.
fn is_file(directory: &Path, log: &str) -> io::Result<bool> {
    let mut parts: Vec<&str> = log.split('/').filter(|part| !part.is_empty()).collect();
    let Some(name) = parts.pop() else { return Ok(false) };
    let mut within = OpenDirectory::open(directory)?;
    for part in parts {
        within = match within.directory(part) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(false),
            opened => opened?,
        };
    }
    within.has_file(name)
}

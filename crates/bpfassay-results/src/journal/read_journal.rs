// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a journal.

#![allow(clippy::disallowed_methods, reason = "the path is only shown in a message")]

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    num::NonZero,
    path::Path,
    sync::mpsc,
    thread,
};

use bpfassay_study::Plan;

use super::{
    FILE_NAME, JournalContents, JournalDigest, JournalError, MAX_FILE, MAX_HEADER, MAX_LINE, Torn, chain, provisioned,
    sound::Sound,
};
use crate::{JOURNAL_VERSION, JournalEntry, JournalHeader, directory::OpenDirectory, disk_space};

/// The line reader and its state.
struct JournalLines<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    chain: JournalDigest,
    /// Number of the line read last.
    number: usize,
    /// File offset of the next line.
    at: u64,
    torn: Option<Torn>,
}

/// Reads the journal in `directory`.
///
/// # Errors
/// The errors of [`read_file`]; [`JournalError::Io`] if the file cannot be opened;
/// [`JournalError::NotAFile`] if it is not a regular file.
pub(super) fn read(directory: &OpenDirectory) -> Result<JournalContents, JournalError> {
    let path = directory.path().join(FILE_NAME);
    let file = directory.read(FILE_NAME).map_err(|source| JournalError::io("read", &path, source))?;
    read_file(&path, file, MAX_FILE)
}

/// Reads the journal in `file`, `limit` bytes at most.
///
/// # Errors
/// The errors of [`read_each`].
pub(super) fn read_file(path: &Path, file: File, limit: u64) -> Result<JournalContents, JournalError> {
    read_each(path, file, limit, &|_, _, _| (), |_, ()| Ok(()))
}

/// Reads the journal in `file`, `limit` bytes at most. Several threads parse entries and call
/// `make` on each. This thread passes each entry and the result of `make` to `keep`, in journal
/// order. Both functions can remove data that is not needed.
///
/// # Errors
/// - [`JournalError::Io`]: the file cannot be read.
/// - [`JournalError::TooLarge`]: the file or a line is too large.
/// - [`JournalError::Version`]: another version wrote it.
/// - [`JournalError::Corrupt`]: the header is missing, an entry is invalid or impossible, or a line
///   does not continue the chain of sums.
/// - Errors of `keep`.
pub(super) fn read_each<T: Send>(
    path: &Path,
    file: File,
    limit: u64,
    make: &(impl Fn(&Plan, EntryText<'_>, &mut JournalEntry) -> T + Sync),
    keep: impl FnMut(&mut JournalEntry, T) -> Result<(), JournalError>,
) -> Result<JournalContents, JournalError> {
    let size = file.metadata().map_err(|source| JournalError::io("read", path, source))?.len();
    if size > limit {
        return Err(JournalError::TooLarge { path: path.to_path_buf(), what: "the file".to_owned(), limit });
    }
    let reader = BufReader::with_capacity(256 << 10, file);
    let mut lines = JournalLines { path, reader, chain: JournalDigest::default(), number: 0, at: 0, torn: None };
    let Some(mut header) = lines.header()? else {
        return Err(JournalError::Corrupt {
            path: path.to_path_buf(),
            line: 1,
            message: "the header is missing, so no run was ever begun".to_owned(),
        });
    };
    // Spare capacity would take hundreds of megabytes for 200,000 runs.
    header.plan.blocks.iter_mut().for_each(|block| block.runs.shrink_to_fit());
    let sound = Sound::new(&header.plan).map_err(|message| lines.corrupt(message))?;
    let makers = makers(size);
    // One thread reads lines and checks sums, several parse entries, and this one puts the entries
    // in order.
    let (read, entries) = thread::scope(|scope| {
        let (mut senders, mut made) = (Vec::new(), Vec::new());
        for _ in 0..makers {
            let (sender, batches) = mpsc::sync_channel(WAITING);
            let (results, receiver) = mpsc::sync_channel(WAITING);
            let plan = &header.plan;
            scope.spawn(move || batches.iter().try_for_each(|batch| results.send(entries_of(&batch, plan, make))));
            senders.push(sender);
            made.push(receiver);
        }
        let lines = &mut lines;
        let reading = scope.spawn(move || lines.batches(&senders));
        let entries = in_order(path, &made, sound, keep);
        drop(made);
        match reading.join() {
            Ok(read) => (read, entries),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    // Errors of entries come first, because lines are read ahead.
    let entries = entries?;
    read?;
    let entries = provisioned::fold(&mut header.provenance, entries)
        .map_err(|(line, message)| JournalError::Corrupt { path: path.to_path_buf(), line, message })?;
    Ok(JournalContents { header, entries, torn: lines.torn, digest: Some(lines.chain) })
}

/// Number of threads that parse the entries of a journal of `size` bytes.
fn makers(size: u64) -> usize {
    let useful = usize::try_from(size / SMALL).unwrap_or(MOST_MAKERS).min(MOST_MAKERS);
    threads(useful).max(1)
}

/// Number of threads that run in parallel on this machine, `most` at most.
pub(super) fn threads(most: usize) -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(most)
}

/// Text of an entry, and its offset in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryText<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: u64,
}

/// Consecutive whole lines without their sums.
#[derive(Default)]
struct Batch {
    /// Line number of the first line.
    first: usize,
    bytes: Vec<u8>,
    /// End of each line in `bytes`, and offset of its object in the file.
    ends: Vec<(usize, u64)>,
}

/// Bytes after which a batch is full.
const BATCH: usize = 1 << 20;
/// Batches per thread that can wait to be parsed, or to be put in order.
const WAITING: usize = 2;
/// Bytes of a journal that justify another thread.
const SMALL: u64 = 4 << 20;
/// Limit of parsing threads. Reading and hashing cannot keep more of them busy.
const MOST_MAKERS: usize = 8;

/// Entries of a batch, and the error of the line after them with its number.
struct ReadEntries<T> {
    first: usize,
    entries: Vec<(JournalEntry, T)>,
    wrong: Option<(usize, String)>,
}

fn entries_of<T>(
    batch: &Batch,
    plan: &Plan,
    make: &impl Fn(&Plan, EntryText<'_>, &mut JournalEntry) -> T,
) -> ReadEntries<T> {
    let mut made = ReadEntries { first: batch.first, entries: Vec::with_capacity(batch.ends.len()), wrong: None };
    let mut start = 0;
    for (index, &(end, at)) in batch.ends.iter().enumerate() {
        let text = batch.bytes.get(start..end).unwrap_or_default();
        match serde_json::from_slice::<JournalEntry>(text) {
            Ok(mut entry) => {
                let of_entry = make(plan, EntryText { text, at }, &mut entry);
                entry.shrink();
                made.entries.push((entry, of_entry));
            }
            Err(error) => {
                made.wrong = Some((batch.first + index, error.to_string()));
                break;
            }
        }
        start = end;
    }
    made
}

/// Takes batches from the receivers of `made` in turn, and passes each entry through `keep`.
fn in_order<T>(
    path: &Path,
    made: &[mpsc::Receiver<ReadEntries<T>>],
    mut sound: Sound<'_>,
    mut keep: impl FnMut(&mut JournalEntry, T) -> Result<(), JournalError>,
) -> Result<Vec<JournalEntry>, JournalError> {
    let corrupt = |(line, message)| JournalError::Corrupt { path: path.to_path_buf(), line, message };
    let mut entries = Vec::new();
    // When one receiver has no more batches, no other has a later one.
    for batch in made.iter().cycle().map_while(|made| made.recv().ok()) {
        for (line, (mut entry, of_entry)) in (batch.first..).zip(batch.entries) {
            sound.next(&entry).map_err(|message| corrupt((line, message)))?;
            keep(&mut entry, of_entry)?;
            entries.push(entry);
        }
        if let Some(wrong) = batch.wrong {
            return Err(corrupt(wrong));
        }
    }
    Ok(entries)
}

impl JournalLines<'_> {
    fn corrupt(&self, message: impl Into<String>) -> JournalError {
        JournalError::Corrupt { path: self.path.to_path_buf(), line: self.number, message: message.into() }
    }

    /// Reads the next line into `line`, without its newline. Returns `false` if there is no whole
    /// line.
    fn next(&mut self, line: &mut Vec<u8>, limit: usize) -> Result<bool, JournalError> {
        let path = self.path;
        line.clear();
        let read = (&mut self.reader).take(limit as u64 + 1).read_until(b'\n', line);
        read.map_err(|source| JournalError::io("read", path, source))?;
        if line.is_empty() {
            return Ok(false);
        }
        self.number += 1;
        self.at = self.at.saturating_add(line.len() as u64);
        if line.len() > limit {
            let what = format!("line {}", self.number);
            return Err(JournalError::TooLarge { path: path.to_path_buf(), what, limit: limit as u64 });
        }
        if line.last() != Some(&b'\n') {
            self.torn = Some(Torn { line: self.number, bytes: line.len() });
            return Ok(false);
        }
        line.pop();
        Ok(true)
    }

    /// Sends all lines to `makers` in turn, until one of them stops receiving.
    fn batches(&mut self, makers: &[mpsc::SyncSender<Batch>]) -> Result<(), JournalError> {
        let mut line = Vec::new();
        let mut batch = Batch::default();
        let mut turns = makers.iter().cycle();
        let mut send = |batch| turns.next().is_some_and(|maker| maker.send(batch).is_ok());
        let read = loop {
            match self.next(&mut line, MAX_LINE) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
            let object = match self.chain.open(&mut line) {
                Ok(object) => object,
                Err(message) => break Err(self.corrupt(message)),
            };
            if batch.ends.is_empty() {
                batch.first = self.number;
                batch.bytes.reserve(BATCH);
            }
            batch.bytes.extend_from_slice(object);
            // `at` is after the newline, which is not part of the object.
            batch.ends.push((batch.bytes.len(), self.at.saturating_sub(object.len() as u64 + 1)));
            if batch.bytes.len() >= BATCH && !send(std::mem::take(&mut batch)) {
                return Ok(());
            }
        };
        // The last batch can hold an earlier error. A receiver that found an error has already
        // stopped, so a failed send is fine.
        let _ = send(batch);
        read
    }

    /// Reads the header, if there is a whole line.
    fn header(&mut self) -> Result<Option<JournalHeader>, JournalError> {
        /// Reads the version and ignores other keys: a header of another version can have other
        /// keys.
        #[derive(serde::Deserialize)]
        struct Version {
            journal: u64,
        }
        let mut line = Vec::new();
        if !self.next(&mut line, MAX_HEADER)? {
            return Ok(None);
        }
        // A wrong sum can come from another version, which has other sums or none.
        let opened = self.chain.open(&mut line).map(<[u8]>::len);
        let start = opened.map_or(0, |length| line.len().saturating_sub(length));
        let object = if opened.is_ok() { line.get(start..).unwrap_or_default() } else { chain::unchecked(&mut line) };
        match (serde_json::from_slice::<Version>(object), opened) {
            (Ok(Version { journal }), _) if journal != u64::from(JOURNAL_VERSION) => {
                Err(JournalError::Version { path: self.path.to_path_buf(), found: journal })
            }
            (Err(_), _) => Err(self.corrupt("not the header of a journal")),
            (_, Err(message)) => Err(self.corrupt(message)),
            (Ok(_), Ok(_)) => serde_json::from_slice(object).map(Some).map_err(|error| self.corrupt(error.to_string())),
        }
    }
}

impl JournalError {
    /// Classifies an error of the action (`read`, `open`) on `path`: not a regular file, several
    /// hard links, or a failed system call.
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        if disk_space::is_no_file(&source) {
            Self::NotAFile { path }
        } else if disk_space::has_other_name(&source) {
            Self::HasOtherName { path }
        } else {
            Self::Io { action, path, source }
        }
    }
}

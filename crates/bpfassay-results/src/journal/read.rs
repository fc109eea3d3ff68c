// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a journal.

#![allow(clippy::disallowed_methods, reason = "the path is only shown in a message")]

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    sync::mpsc,
    thread,
};

use super::{
    Contents, FILE_NAME, JournalDigest, JournalError, MAX_FILE, MAX_HEADER, MAX_LINE, Torn, chain, provisioned,
    sound::Sound,
};
use crate::{Entry, Header, JOURNAL_VERSION, directory::OpenDirectory, disk};

/// What is being read.
struct Lines<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    chain: JournalDigest,
    /// Of the line that was read last.
    number: usize,
    torn: Option<Torn>,
}

/// Reads the journal in `directory`.
///
/// # Errors
/// Those of [`read_file`]; [`JournalError::Io`] where the file cannot be opened;
/// [`JournalError::NotAFile`] where it is no regular file.
pub(super) fn read(directory: &OpenDirectory) -> Result<Contents, JournalError> {
    let path = directory.path().join(FILE_NAME);
    let file = directory.read(FILE_NAME).map_err(|source| JournalError::io("read", &path, source))?;
    read_file(&path, file, MAX_FILE)
}

/// Reads the journal that `file` is, from its beginning: `limit` bytes at most.
///
/// # Errors
/// [`JournalError::Io`] where the file cannot be read; [`JournalError::TooLarge`] where it, or a line of it, is larger than a journal may be;
/// [`JournalError::Corrupt`] where the header is missing, or a line is no entry or does not continue the chain of digests.
pub(super) fn read_file(path: &Path, file: File, limit: u64) -> Result<Contents, JournalError> {
    let metadata = file.metadata().map_err(|source| JournalError::io("read", path, source))?;
    if metadata.len() > limit {
        return Err(JournalError::TooLarge { path: path.to_path_buf(), what: "the file".to_owned(), limit });
    }
    let reader = BufReader::with_capacity(256 << 10, file);
    let mut lines = Lines { path, reader, chain: JournalDigest::default(), number: 0, torn: None };
    let Some(mut header) = lines.header()? else {
        return Err(JournalError::Corrupt {
            path: path.to_path_buf(),
            line: 1,
            message: "the header is missing, so no run was ever begun".to_owned(),
        });
    };
    let sound = Sound::new(&header.plan).map_err(|message| lines.corrupt(message))?;
    // One thread reads lines and sums them up, the other makes entries of them: each is about half of the work.
    let (sender, receiver) = mpsc::sync_channel(WAITING);
    let (read, entries) = thread::scope(|scope| {
        let entries = scope.spawn(|| entries_of(receiver, sound));
        let read = lines.batches(&sender);
        drop(sender);
        match entries.join() {
            Ok(entries) => (read, entries),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    // What is wrong with an entry comes first: lines are read ahead of it.
    let entries =
        entries.map_err(|(line, message)| JournalError::Corrupt { path: path.to_path_buf(), line, message })?;
    read?;
    let entries = provisioned::fold(&mut header.provenance, entries)
        .map_err(|(line, message)| JournalError::Corrupt { path: path.to_path_buf(), line, message })?;
    Ok(Contents { header, entries, torn: lines.torn, digest: Some(lines.chain) })
}

/// Whole lines that follow each other, without their sums.
#[derive(Default)]
struct Batch {
    /// The number of the first.
    first: usize,
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

/// A batch is full when it has so many bytes.
const BATCH: usize = 1 << 20;
/// Batches that wait to be made entries of.
const WAITING: usize = 4;

/// The entries in `batches`, or what is wrong with the first that is wrong, with the number of its line.
fn entries_of(batches: mpsc::Receiver<Batch>, mut sound: Sound<'_>) -> Result<Vec<Entry>, (usize, String)> {
    let mut entries = Vec::new();
    for batch in batches {
        let mut start = 0;
        for (index, &end) in batch.ends.iter().enumerate() {
            let at_line = |message: String| (batch.first + index, message);
            let object = batch.bytes.get(start..end).unwrap_or_default();
            let mut entry: Entry = serde_json::from_slice(object).map_err(|error| at_line(error.to_string()))?;
            sound.next(&entry).map_err(at_line)?;
            entry.shrink();
            entries.push(entry);
            start = end;
        }
    }
    Ok(entries)
}

impl Lines<'_> {
    fn corrupt(&self, message: impl Into<String>) -> JournalError {
        JournalError::Corrupt { path: self.path.to_path_buf(), line: self.number, message: message.into() }
    }

    /// Puts the next line into `line`, without its newline; `false` where there is none that is whole.
    fn next(&mut self, line: &mut Vec<u8>, limit: usize) -> Result<bool, JournalError> {
        let path = self.path;
        line.clear();
        let read = (&mut self.reader).take(limit as u64 + 1).read_until(b'\n', line);
        read.map_err(|source| JournalError::io("read", path, source))?;
        if line.is_empty() {
            return Ok(false);
        }
        self.number += 1;
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

    /// Gives all lines to `batches`, until no batch is taken any more.
    fn batches(&mut self, batches: &mpsc::SyncSender<Batch>) -> Result<(), JournalError> {
        let mut line = Vec::new();
        let mut batch = Batch::default();
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
            }
            batch.bytes.extend_from_slice(object);
            batch.ends.push(batch.bytes.len());
            if batch.bytes.len() >= BATCH && batches.send(std::mem::take(&mut batch)).is_err() {
                return Ok(());
            }
        };
        // Whatever ended this, something may be wrong with what came before. One that finds that takes no more.
        let _ = batches.send(batch);
        read
    }

    /// The header, if there is a whole line.
    fn header(&mut self) -> Result<Option<Header>, JournalError> {
        /// Only the version, whatever else there is: a header of another version need not look like ours.
        #[derive(serde::Deserialize)]
        struct Version {
            journal: u64,
        }
        let mut line = Vec::new();
        if !self.next(&mut line, MAX_HEADER)? {
            return Ok(None);
        }
        // Where the sum does not fit, the version may be why: another one may have other sums, or none.
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
    /// The system refused to `action` (`read`, `open`) `path`, or what is there is no file, or one of
    /// several names.
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        if disk::is_no_file(&source) {
            Self::NotAFile { path }
        } else if disk::has_other_name(&source) {
            Self::HasOtherName { path }
        } else {
            Self::Io { action, path, source }
        }
    }
}

//! Reading a journal.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use serde::de::DeserializeOwned;

use super::{Contents, JournalDigest, JournalError, MAX_FILE, MAX_HEADER, MAX_LINE, Torn, chain, sound::Sound};
use crate::{Entry, Header, JOURNAL_VERSION, disk};

/// What is being read.
struct Lines<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    chain: JournalDigest,
    /// Of the line that was read last.
    number: usize,
    torn: Option<Torn>,
}

pub(super) fn read(path: &Path) -> Result<Contents, JournalError> {
    read_file(path, disk::regular(path).map_err(|source| JournalError::io("read", path, source))?)
}

/// Reads the journal that `file` is, from its beginning.
pub(super) fn read_file(path: &Path, file: File) -> Result<Contents, JournalError> {
    let metadata = file.metadata().map_err(|source| JournalError::io("read", path, source))?;
    if metadata.len() > MAX_FILE {
        return Err(JournalError::TooLarge { path: path.to_path_buf(), what: "the file".to_owned(), limit: MAX_FILE });
    }
    let reader = BufReader::with_capacity(256 << 10, file);
    let mut lines = Lines { path, reader, chain: JournalDigest::default(), number: 0, torn: None };
    let Some(header) = lines.header()? else {
        return Err(JournalError::Corrupt {
            path: path.to_path_buf(),
            line: 1,
            message: "the header is missing, so no run was ever begun".to_owned(),
        });
    };
    let mut sound = Sound::new(&header.plan).map_err(|message| lines.corrupt(message))?;
    let mut entries: Vec<Entry> = Vec::new();
    let mut line = Vec::new();
    while lines.next(&mut line, MAX_LINE)? {
        let mut entry: Entry = lines.opened(&mut line)?;
        sound.next(&entry).map_err(|message| lines.corrupt(message))?;
        entry.shrink();
        entries.push(entry);
    }
    drop(sound);
    Ok(Contents { header, entries, torn: lines.torn, digest: Some(lines.chain) })
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

    /// What is in `line`, whose sum must fit.
    fn opened<T: DeserializeOwned>(&mut self, line: &mut [u8]) -> Result<T, JournalError> {
        let object = self.chain.open(line).map_err(|message| self.corrupt(message))?;
        serde_json::from_slice(object).map_err(|error| self.corrupt(error.to_string()))
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
    /// The system refused to `action` (`read`, `open`) `path`, or what is there is no file.
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match disk::is_no_file(&source) {
            true => Self::NotAFile { path },
            false => Self::Io { action, path, source },
        }
    }
}

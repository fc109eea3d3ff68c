//! Reading a journal.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use serde::de::DeserializeOwned;

use super::{Contents, JournalError, MAX_FILE, MAX_LINE, Torn};
use crate::{Header, JOURNAL_VERSION};

pub(super) fn read(path: &Path) -> Result<Contents, JournalError> {
    let io = |source| JournalError::Io { action: "read", path: path.to_path_buf(), source };
    let too_large = |what: String, limit| JournalError::TooLarge { path: path.to_path_buf(), what, limit };
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.len() > MAX_FILE {
        return Err(too_large("the file".to_owned(), MAX_FILE));
    }
    let mut reader = BufReader::new(file);
    let mut header = None;
    let mut entries = Vec::new();
    let mut torn = None;
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        (&mut reader).take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line).map_err(io)?;
        if line.is_empty() {
            break;
        }
        if line.len() > MAX_LINE {
            return Err(too_large(format!("line {number}"), MAX_LINE as u64));
        }
        let Some(text) = line.strip_suffix(b"\n") else {
            torn = Some(Torn { line: number, bytes: line.len() });
            break;
        };
        match header {
            None => header = Some(read_header(path, text)?),
            Some(_) => entries.push(parse(path, number, text)?),
        }
    }
    let header = header.ok_or_else(|| JournalError::Corrupt {
        path: path.to_path_buf(),
        line: 1,
        message: "the header is missing, so no run was ever begun".to_owned(),
    })?;
    Ok(Contents { header, entries, torn })
}

fn read_header(path: &Path, text: &[u8]) -> Result<Header, JournalError> {
    // The version first: a header of another version need not look like ours.
    let value: serde_json::Value = parse(path, 1, text)?;
    match value.get("journal").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(JOURNAL_VERSION) => parse(path, 1, text),
        Some(found) => Err(JournalError::Version { path: path.to_path_buf(), found }),
        None => Err(JournalError::Corrupt {
            path: path.to_path_buf(),
            line: 1,
            message: "not the header of a journal".to_owned(),
        }),
    }
}

fn parse<T: DeserializeOwned>(path: &Path, line: usize, text: &[u8]) -> Result<T, JournalError> {
    serde_json::from_slice(text).map_err(|error| JournalError::Corrupt {
        path: path.to_path_buf(),
        line,
        message: error.to_string(),
    })
}

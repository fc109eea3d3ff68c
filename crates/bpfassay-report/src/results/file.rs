//! `results.json` on disk.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{FILE_NAME, MAX_FILE, Results};
use crate::RESULTS_VERSION;

/// Why results cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was to be done.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file is too large.
    #[error("{} is larger than {MAX_FILE} bytes: is it a results file?", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file does not hold results.
    #[error("{} does not hold results that this version of bpfassay knows: use the one that wrote them, or make them again with `bpfassay run`", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// The file holds results of another version.
    #[error("{} holds results of version {found}, this program reads version {RESULTS_VERSION}: use the version that wrote them", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: u64,
    },
}

/// Reads a `results.json`, or the one in a results directory.
///
/// # Errors
/// [`ResultsError`]
pub fn read(path: &Path) -> Result<Results, ResultsError> {
    let path = if path.is_dir() { path.join(FILE_NAME) } else { path.to_path_buf() };
    let io = |source| ResultsError::Io { action: "read", path: path.clone(), source };
    let mut text = Vec::new();
    File::open(&path).map_err(io)?.take(MAX_FILE + 1).read_to_end(&mut text).map_err(io)?;
    if text.len() as u64 > MAX_FILE {
        return Err(ResultsError::TooLarge { path });
    }
    parse(&text).map_err(|error| match error {
        ParseError::Version(found) => ResultsError::Version { path: path.clone(), found },
        ParseError::Json(source) => ResultsError::Invalid { path: path.clone(), source },
    })
}

enum ParseError {
    Version(u64),
    Json(serde_json::Error),
}

fn parse(text: &[u8]) -> Result<Results, ParseError> {
    /// Only the version, whatever else there is.
    #[derive(Deserialize)]
    struct Version {
        version: u64,
    }
    let Version { version } = serde_json::from_slice(text).map_err(ParseError::Json)?;
    if version != u64::from(RESULTS_VERSION) {
        return Err(ParseError::Version(version));
    }
    serde_json::from_slice(text).map_err(ParseError::Json)
}

/// Writes `results.json` into `directory`, whole or not at all, and returns its path.
///
/// # Errors
/// [`ResultsError`]
pub fn write(directory: &Path, results: &Results) -> Result<PathBuf, ResultsError> {
    let path = directory.join(FILE_NAME);
    let temporary = directory.join(format!(".{FILE_NAME}.new"));
    let mut text =
        serde_json::to_vec_pretty(results).map_err(|source| ResultsError::Invalid { path: path.clone(), source })?;
    text.push(b'\n');
    let io = |source| ResultsError::Io { action: "write", path: path.clone(), source };
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(&text)?;
        file.sync_data()?;
        fs::rename(&temporary, &path)
    });
    written.map_err(|error| {
        // The error counts; a leftover of a full disk must not stay.
        let _ = fs::remove_file(&temporary);
        io(error)
    })?;
    Ok(path)
}

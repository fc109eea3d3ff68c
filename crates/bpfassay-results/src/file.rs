// SPDX-License-Identifier: MIT OR Apache-2.0
//! `results.json` on disk.
//!
//! The first key of the file is `digest`: SHA-256, in hexadecimal, of all bytes of the file, with
//! zeros in place of the digest's digits. The beginning of the file is fixed to the byte, so every
//! byte counts. The digest detects damage and manual edits. It does not protect against malice:
//! anybody can compute a new digest for changed contents.

#![allow(clippy::disallowed_methods, reason = "the path is only shown in a message")]

mod content;
mod file_layout;
mod whole_file;

use std::{
    io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use self::whole_file::WholeResults;
use self::{content::ContentRange, file_layout::JsonLayout};
use crate::{
    RESULTS_VERSION, Results,
    directory::{Draft, OpenDirectory},
    disk_space,
    journal::hex,
};

/// Name of the results file in a results directory.
pub const FILE_NAME: &str = "results.json";

/// Name of the results file if `xz` compressed it.
pub const PACKED_NAME: &str = "results.json.xz";

/// Largest results file that is read, in bytes.
pub const MAX_FILE: u64 = 8 << 30;

/// A results file begins with this text. The digest follows.
const HEAD: &[u8] = b"{\n  \"digest\": \"";

/// Text between the digest and the other keys.
const AFTER: &[u8] = b"\",";

/// Replaces the digest while it is computed.
const ZEROS: [u8; 64] = [b'0'; 64];

/// Why results cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// A system call failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The results file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The path is not a regular file.
    #[error(
        "{} is a pipe, a device, a directory or, in a results directory, a symbolic link: \
         name a regular file, or a results directory",
        path.display()
    )]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file is too large.
    #[error("{} is larger than {MAX_FILE} bytes: is it a results file?", path.display())]
    TooLarge {
        /// The results file.
        path: PathBuf,
    },
    /// The decompressed data is far larger than results of that file size can be.
    #[error("{} unpacks to far more than results of its size do: it is no results file", path.display())]
    Unpacks {
        /// The results file.
        path: PathBuf,
    },
    /// The file does not hold results.
    #[error("{} does not hold results that this version of bpfassay can read: use the one that wrote them, or make them again with `bpfassay run`", path.display())]
    Invalid {
        /// The results file.
        path: PathBuf,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// The file holds results of another version.
    #[error("{} holds results of version {found}, this program reads version {RESULTS_VERSION}: use the version that wrote them", path.display())]
    Version {
        /// The results file.
        path: PathBuf,
        /// The version found.
        found: u64,
    },
    /// The file does not begin with the digest of its bytes.
    #[error(
        "{} does not begin with its digest, so it cannot be checked whether it was changed: it was written by {by}, before results had digests, or \
         another program has changed it since; make it again with `bpfassay run`, or read it with the version that wrote it",
        path.display()
    )]
    NoDigest {
        /// The results file.
        path: PathBuf,
        /// The program that wrote the results, such as `bpfassay 0.1.0`.
        by: String,
    },
    /// The digest does not match the file's bytes.
    #[error("{} was changed or damaged: its bytes do not come to its digest; restore it, or make it again with `bpfassay run --resume DIR`", path.display())]
    Damaged {
        /// The results file.
        path: PathBuf,
    },
}

impl ResultsError {
    fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match disk_space::is_no_file(&source) {
            true => Self::NotAFile { path },
            false => Self::Io { action, path, source },
        }
    }
}

/// Hashes all bytes that pass through `inner`.
struct Hashing<T> {
    inner: T,
    hash: Sha256,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hash.update(buffer.get(..length).unwrap_or_default());
        Ok(length)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.inner.write(bytes)?;
        self.hash.update(bytes.get(..length).unwrap_or_default());
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Drops the first byte written.
struct WithoutFirst<W> {
    inner: W,
    is_first: bool,
}

impl<W: Write> Write for WithoutFirst<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match bytes {
            [_, ..] if self.is_first => {
                self.is_first = false;
                Ok(1)
            }
            _ => self.inner.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Results as read, with the digest from their file.
pub struct Sealed {
    /// The results.
    pub results: Results,
    /// The digest, in hexadecimal.
    pub digest: String,
    /// Whether the file is compressed, as published results are.
    pub is_packed: bool,
}

/// Reads a `results.json`, or the one in a results directory. A directory without `results.json`
/// can have a `results.json.xz`.
///
/// # Errors
/// The errors of [`sealed`].
pub fn read(path: &Path) -> Result<Results, ResultsError> {
    sealed(path).map(|sealed| sealed.results)
}

/// Like [`read`], with the digest of the file.
///
/// # Errors
/// - [`ResultsError::Io`], [`ResultsError::NotAFile`], [`ResultsError::TooLarge`]: the file cannot
///   be read.
/// - [`ResultsError::Unpacks`]: too much data comes out of a compressed file.
/// - [`ResultsError::NoDigest`]: the file does not begin with its digest.
/// - [`ResultsError::Damaged`]: the digest does not match the file's bytes.
/// - [`ResultsError::Version`]: the results have another version.
/// - [`ResultsError::Invalid`]: the file does not hold results.
pub fn sealed(path: &Path) -> Result<Sealed, ResultsError> {
    let content = ContentRange::at(path)?;
    let path = content.path.clone();
    let io = |source| content.error(source);
    let mut file = content.open()?;
    let mut beginning = Vec::new();
    Read::by_ref(&mut file)
        .take((HEAD.len() + ZEROS.len() + AFTER.len()) as u64)
        .read_to_end(&mut beginning)
        .map_err(io)?;
    let named =
        beginning.strip_prefix(HEAD).and_then(|rest| rest.strip_suffix(AFTER)).filter(|digits| digits.len() == 64);
    let Some(named) = named.and_then(|digits| std::str::from_utf8(digits).ok()) else {
        return Err(without_digest(&content).unwrap_or_else(|error| error));
    };
    let mut hash = Sha256::new();
    [HEAD, &ZEROS, AFTER].iter().for_each(|part| hash.update(part));
    // The limit keeps this from reading a growing file for ever.
    let mut rest = Hashing { inner: file.take(MAX_FILE), hash };
    let parsed = {
        let buffered = BufReader::with_capacity(256 << 10, &mut rest);
        serde_json::from_reader::<_, Results>(b"{".as_slice().chain(buffered))
    };
    // Bytes after a syntax error count for the digest, too.
    io::copy(&mut rest, &mut io::sink()).map_err(io)?;
    let is_intact = hex(&rest.hash.finalize()) == named;
    match parsed {
        Err(error) if error.is_io() => Err(io(error.into())),
        _ if !is_intact => Err(ResultsError::Damaged { path }),
        Ok(results) if results.version == RESULTS_VERSION => {
            Ok(Sealed { results, digest: named.to_owned(), is_packed: path.ends_with(PACKED_NAME) })
        }
        Ok(results) => Err(ResultsError::Version { path, found: results.version.into() }),
        Err(source) => Err(unknown(&content, source)),
    }
}

/// The keys that tell which program wrote the results; others are ignored.
#[derive(Deserialize)]
struct Origin {
    version: u64,
    #[serde(default)]
    provenance: Vec<Maker>,
}

/// The part of [`crate::Provenance`] that names the program.
#[derive(Deserialize)]
struct Maker {
    bpfassay: VersionPart,
}

/// The part of [`crate::provenance::Artefact`] that has the version.
#[derive(Deserialize)]
struct VersionPart {
    version: String,
}

fn origin(file: Box<dyn Read>) -> Result<Origin, serde_json::Error> {
    serde_json::from_reader(BufReader::new(file.take(MAX_FILE)))
}

/// Tells why intact results cannot be used.
fn unknown(content: &ContentRange, source: serde_json::Error) -> ResultsError {
    let path = content.path.clone();
    match content.open().map(origin) {
        Ok(Ok(Origin { version, .. })) if version != u64::from(RESULTS_VERSION) => {
            ResultsError::Version { path, found: version }
        }
        _ => ResultsError::Invalid { path, source },
    }
}

/// Tells why a file without a leading digest cannot be used.
///
/// # Errors
/// Fails if the file cannot be read.
fn without_digest(content: &ContentRange) -> Result<ResultsError, ResultsError> {
    content.check()?;
    let path = content.path.clone();
    Ok(match origin(content.open()?) {
        Err(error) if error.is_io() => content.error(error.into()),
        Err(source) => ResultsError::Invalid { path, source },
        Ok(Origin { version, .. }) if version != u64::from(RESULTS_VERSION) => {
            ResultsError::Version { path, found: version }
        }
        Ok(Origin { provenance, .. }) => {
            let by = provenance.last().map_or_else(
                || "an unknown version of bpfassay".to_owned(),
                |made| format!("bpfassay {}", crate::plain::line(&made.bpfassay.version)),
            );
            ResultsError::NoDigest { path, by }
        }
    })
}

/// Writes `results.json` into `directory`, whole or not at all, and returns its path.
///
/// # Errors
/// The errors of [`write_in`], and [`ResultsError::Io`] if the directory cannot be opened.
pub fn write(directory: &Path, results: &Results) -> Result<PathBuf, ResultsError> {
    let opened = OpenDirectory::open(directory)
        .map_err(|source| ResultsError::io("write", &directory.join(FILE_NAME), source))?;
    write_in(&opened, results)
}

/// Like [`write()`], into an open directory.
///
/// # Errors
/// [`ResultsError::Io`] or [`ResultsError::NotAFile`] if the file cannot be written;
/// [`ResultsError::Invalid`] if the results have no JSON form.
pub fn write_in(directory: &OpenDirectory, results: &Results) -> Result<PathBuf, ResultsError> {
    write_value(directory, results)
}

/// Writes a value with the JSON form of [`Results`].
///
/// # Errors
/// The errors of [`write_in`].
fn write_value(directory: &OpenDirectory, results: &impl Serialize) -> Result<PathBuf, ResultsError> {
    let path = directory.path().join(FILE_NAME);
    let temporary = format!(".{FILE_NAME}.new");
    let io = |source| ResultsError::io("write", &path, source);
    // A killed process can have left this file. It is removed and not written through, whatever it
    // is.
    directory.remove(&temporary).map_err(io)?;
    let written = Draft::new(directory, &temporary).map_err(serde_json::Error::io).and_then(|(draft, file)| {
        let (digest, mut file) = print(file, results)?;
        let sealed = file
            .seek(SeekFrom::Start(HEAD.len() as u64))
            .and_then(|_| file.write_all(digest.as_bytes()))
            .and_then(|()| file.sync_data())
            .and_then(|()| draft.name(&file))
            .and_then(|()| directory.rename(&temporary, FILE_NAME));
        sealed.map_err(serde_json::Error::io)
    });
    written.map_err(|error| {
        // The first error is returned, and a partial file must not stay on a full disk.
        let _ = directory.remove(&temporary);
        match error.is_io() {
            true => io(error.into()),
            false => ResultsError::Invalid { path: path.clone(), source: error },
        }
    })?;
    Ok(path)
}

/// Returns the digest that a `results.json` with `results` has, without writing the file.
///
/// # Errors
/// Fails if the results have no JSON form.
pub fn digest(results: &Results) -> Result<String, serde_json::Error> {
    print(io::sink(), results).map(|(digest, _)| digest)
}

/// Writes `results` to `out` with zeros in place of the digest, and returns the digest.
fn print<W: Write>(out: W, results: &impl Serialize) -> Result<(String, W), serde_json::Error> {
    let io = serde_json::Error::io;
    let mut hashing = Hashing { inner: out, hash: Sha256::new() };
    [HEAD, &ZEROS, AFTER].iter().try_for_each(|part| hashing.write_all(part)).map_err(io)?;
    let mut rest = BufWriter::with_capacity(256 << 10, WithoutFirst { inner: hashing, is_first: true });
    results.serialize(&mut serde_json::Serializer::with_formatter(&mut rest, JsonLayout::default()))?;
    rest.write_all(b"\n").map_err(io)?;
    let Hashing { inner, hash } = rest.into_inner().map_err(|error| io(error.into_error()))?.inner;
    Ok((hex(&hash.finalize()), inner))
}

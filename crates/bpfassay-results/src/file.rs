// SPDX-License-Identifier: MIT OR Apache-2.0
//! `results.json` on disk.
//!
//! Its first key is `digest`: SHA-256, in hexadecimal, of all bytes of the file with zeros in the
//! place of the digest's own digits. The file's beginning is fixed to the byte, so every byte
//! counts. This finds damage and edits by hand, not malice: whoever makes another digest makes a
//! file that is read.

#![allow(clippy::disallowed_methods, reason = "the path is only shown in a message")]

mod content;
mod layout;
mod whole;

use std::{
    io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use self::whole::Whole;
use self::{content::Content, layout::Layout};
use crate::{
    RESULTS_VERSION, Results,
    directory::{Draft, OpenDirectory},
    disk,
    journal::hex,
};

/// File name of results in a results directory.
pub const FILE_NAME: &str = "results.json";

/// The same of results that were compressed by `xz`.
pub const PACKED_NAME: &str = "results.json.xz";

/// Largest results file that is read, in bytes.
pub const MAX_FILE: u64 = 8 << 30;

/// A results file begins so, with the digest behind it.
const HEAD: &[u8] = b"{\n  \"digest\": \"";

/// Between the digest and the other keys.
const AFTER: &[u8] = b"\",";

/// In the place of the digest, for computing it.
const ZEROS: [u8; 64] = [b'0'; 64];

/// Why results cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// What has the name is no file.
    #[error(
        "{} is a pipe, a device, a directory or, in a results directory, a symbolic link: \
         name a regular file, or a results directory",
        path.display()
    )]
    NotAFile {
        /// What was to be a file.
        path: PathBuf,
    },
    /// The file is too large.
    #[error("{} is larger than {MAX_FILE} bytes: is it a results file?", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Far more comes out of a compressed file than results of its size have.
    #[error("{} unpacks to far more than results of its size do: it is no results file", path.display())]
    Unpacks {
        /// The file.
        path: PathBuf,
    },
    /// The file does not hold results.
    #[error("{} does not hold results that this version of bpfassay can read: use the one that wrote them, or make them again with `bpfassay run`", path.display())]
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
    /// The file does not begin with the digest of its bytes.
    #[error(
        "{} does not begin with its digest, so it cannot be checked whether it was changed: it was written by {by}, before results had digests, or \
         another program has changed it since; make it again with `bpfassay run`, or read it with the version that wrote it",
        path.display()
    )]
    NoDigest {
        /// The file.
        path: PathBuf,
        /// `bpfassay 0.1.0`, as the file has it.
        by: String,
    },
    /// The file is not as it was written.
    #[error("{} was changed or damaged: its bytes do not come to its digest; restore it, or make it again with `bpfassay run --resume DIR`", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

impl ResultsError {
    fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match disk::is_no_file(&source) {
            true => Self::NotAFile { path },
            false => Self::Io { action, path, source },
        }
    }
}

/// Hands on the bytes of `inner`, and takes them in.
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

/// Drops the first byte.
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

/// Results with the digest that their file names, as they are read.
pub struct Sealed {
    /// The results.
    pub results: Results,
    /// The digest, in hexadecimal.
    pub digest: String,
    /// Whether it is the compressed form, in which results are published.
    pub is_packed: bool,
}

/// Reads a `results.json`, or the one in a results directory; where that has none, its
/// `results.json.xz`.
///
/// # Errors
/// As [`sealed`].
pub fn read(path: &Path) -> Result<Results, ResultsError> {
    sealed(path).map(|sealed| sealed.results)
}

/// The same with the file's digest.
///
/// # Errors
/// [`ResultsError::Io`], [`ResultsError::NotAFile`] or [`ResultsError::TooLarge`] where the file cannot be read, [`ResultsError::NoDigest`] where it
/// does not begin with its digest, [`ResultsError::Damaged`] where its bytes do not match that,
/// [`ResultsError::Version`] for another version,
/// [`ResultsError::Invalid`] for anything that is not results.
pub fn sealed(path: &Path) -> Result<Sealed, ResultsError> {
    let content = Content::at(path)?;
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
    // The file may grow meanwhile; it is not to be read for ever.
    let mut rest = Hashing { inner: file.take(MAX_FILE), hash };
    let parsed = {
        let buffered = BufReader::with_capacity(256 << 10, &mut rest);
        serde_json::from_reader::<_, Results>(b"{".as_slice().chain(buffered))
    };
    // What stands behind a place that cannot be read counts, too.
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

/// Only what identifies who wrote results, whatever else there is.
#[derive(Deserialize)]
struct Origin {
    version: u64,
    #[serde(default)]
    provenance: Vec<Maker>,
}

/// Of [`crate::Provenance`].
#[derive(Deserialize)]
struct Maker {
    bpfassay: Program,
}

/// Of [`crate::provenance::Artefact`].
#[derive(Deserialize)]
struct Program {
    version: String,
}

fn origin(file: Box<dyn Read>) -> Result<Origin, serde_json::Error> {
    serde_json::from_reader(BufReader::new(file.take(MAX_FILE)))
}

/// Why results that are intact cannot be used.
fn unknown(content: &Content, source: serde_json::Error) -> ResultsError {
    let path = content.path.clone();
    match content.open().map(origin) {
        Ok(Ok(Origin { version, .. })) if version != u64::from(RESULTS_VERSION) => {
            ResultsError::Version { path, found: version }
        }
        _ => ResultsError::Invalid { path, source },
    }
}

/// Why a file that does not begin with a digest cannot be used.
///
/// # Errors
/// That it cannot be read.
fn without_digest(content: &Content) -> Result<ResultsError, ResultsError> {
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
/// As [`write_in`]; [`ResultsError::Io`] where the directory cannot be opened.
pub fn write(directory: &Path, results: &Results) -> Result<PathBuf, ResultsError> {
    let opened = OpenDirectory::open(directory)
        .map_err(|source| ResultsError::io("write", &directory.join(FILE_NAME), source))?;
    write_in(&opened, results)
}

/// The same in a directory that is open.
///
/// # Errors
/// [`ResultsError::Io`] or [`ResultsError::NotAFile`] where the file cannot be written;
/// [`ResultsError::Invalid`] where the results have no JSON form.
pub fn write_in(directory: &OpenDirectory, results: &Results) -> Result<PathBuf, ResultsError> {
    write_value(directory, results)
}

/// Writes what has the form of [`Results`].
///
/// # Errors
/// As [`write_in`].
fn write_value(directory: &OpenDirectory, results: &impl Serialize) -> Result<PathBuf, ResultsError> {
    let path = directory.path().join(FILE_NAME);
    let temporary = format!(".{FILE_NAME}.new");
    let io = |source| ResultsError::io("write", &path, source);
    // Of an execution that was killed; whatever it is, it is not written through.
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
        // The error counts; a leftover of a full disk must not stay.
        let _ = directory.remove(&temporary);
        match error.is_io() {
            true => io(error.into()),
            false => ResultsError::Invalid { path: path.clone(), source: error },
        }
    })?;
    Ok(path)
}

/// The digest that `results.json` has where it holds `results`, without writing it.
///
/// # Errors
/// Where the results have no JSON form.
pub fn digest(results: &Results) -> Result<String, serde_json::Error> {
    print(io::sink(), results).map(|(digest, _)| digest)
}

/// Writes `results` to `out` with zeros in the place of the digest, and gives the digest.
fn print<W: Write>(out: W, results: &impl Serialize) -> Result<(String, W), serde_json::Error> {
    let io = serde_json::Error::io;
    let mut hashing = Hashing { inner: out, hash: Sha256::new() };
    [HEAD, &ZEROS, AFTER].iter().try_for_each(|part| hashing.write_all(part)).map_err(io)?;
    let mut rest = BufWriter::with_capacity(256 << 10, WithoutFirst { inner: hashing, is_first: true });
    results.serialize(&mut serde_json::Serializer::with_formatter(&mut rest, Layout::default()))?;
    rest.write_all(b"\n").map_err(io)?;
    let Hashing { inner, hash } = rest.into_inner().map_err(|error| io(error.into_error()))?.inner;
    Ok((hex(&hash.finalize()), inner))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a results file, compressed or not.

#![allow(clippy::disallowed_methods, reason = "the path is only shown in a message")]

use std::{
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use lzma_rust2::XzReader;

use super::{FILE_NAME, MAX_FILE, PACKED_NAME, ResultsError};
use crate::{directory::OpenDirectory, disk_space};

/// Memory limit for decompression, in KiB: four times what `xz -9` needs.
const MAX_MEMORY: u32 = 256 << 10;

/// How many times larger than its file the decompressed data can be, in addition to [`SLACK`]. `xz
/// -9` shrinks results by a factor of 50.
const MOST_GROWTH: u64 = 100;
/// Decompressed bytes allowed for a small file in any case.
const SLACK: u64 = 16 << 20;

/// Location of the bytes.
pub(super) struct ContentRange {
    pub(super) path: PathBuf,
    /// The results directory, if the user named one, and the file's name in it.
    within: Option<(OpenDirectory, &'static str)>,
    is_packed: bool,
}

impl ContentRange {
    /// Finds the results file at `path`, or in the results directory at `path`.
    ///
    /// # Errors
    /// [`ResultsError::Io`] if the directory cannot be opened.
    pub(super) fn at(path: &Path) -> Result<Self, ResultsError> {
        if !path.is_dir() {
            let is_packed = path.extension().is_some_and(|extension| extension == "xz");
            return Ok(Self { path: path.to_path_buf(), within: None, is_packed });
        }
        let failed = |source| ResultsError::io("read", &path.join(FILE_NAME), source);
        let directory = OpenDirectory::open(path).map_err(failed)?;
        let is_packed = !directory.has(FILE_NAME).map_err(failed)? && directory.has(PACKED_NAME).map_err(failed)?;
        let name = if is_packed { PACKED_NAME } else { FILE_NAME };
        Ok(Self { path: path.join(name), within: Some((directory, name)), is_packed })
    }

    /// Opens the file, and decompresses it if needed.
    ///
    /// # Errors
    /// [`ResultsError::Io`] or [`ResultsError::NotAFile`] if the file cannot be opened;
    /// [`ResultsError::TooLarge`].
    pub(super) fn open(&self) -> Result<Box<dyn Read>, ResultsError> {
        let failed = |source| self.error(source);
        let file = match &self.within {
            Some((directory, name)) => directory.read(name),
            None => disk_space::regular(&self.path),
        };
        let file = file.map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        if size > MAX_FILE {
            return Err(ResultsError::TooLarge { path: self.path.clone() });
        }
        let limit = size.saturating_mul(MOST_GROWTH).saturating_add(SLACK).min(MAX_FILE);
        Ok(match self.is_packed {
            true => Box::new(BoundedReader {
                reader: XzReader::new_mem_limit(BufReader::new(file.take(MAX_FILE)), false, MAX_MEMORY),
                left: limit,
            }),
            false => Box::new(file),
        })
    }

    /// Reads a compressed file to its end, where its checksums are. A damaged file can begin with
    /// anything.
    ///
    /// # Errors
    /// [`ResultsError::Damaged`], and the errors of [`Self::open`].
    pub(super) fn check(&self) -> Result<(), ResultsError> {
        if self.is_packed {
            io::copy(&mut self.open()?.take(MAX_FILE), &mut io::sink()).map_err(|source| self.error(source))?;
        }
        Ok(())
    }

    /// Classifies an error of reading. The decompressor's errors have no OS error number, whatever
    /// their kind; they mean that the file's bytes are wrong.
    pub(super) fn error(&self, source: io::Error) -> ResultsError {
        match source.raw_os_error() {
            None if source.kind() == io::ErrorKind::FileTooLarge => ResultsError::Unpacks { path: self.path.clone() },
            None if self.is_packed && !disk_space::is_no_file(&source) => {
                ResultsError::Damaged { path: self.path.clone() }
            }
            _ => ResultsError::io("read", &self.path, source),
        }
    }
}

/// A reader that fails after too many bytes.
struct BoundedReader<R> {
    reader: R,
    left: u64,
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.reader.read(buffer)?;
        self.left = self.left.checked_sub(length as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use lzma_rust2::{XzOptions, XzWriter};

    use super::*;

    /// Writes a `results.json.xz` that holds `begin` and then `zeros` zeros as JSON text.
    fn packed(begin: &str, zeros: usize) -> (tempfile::TempDir, u64) {
        let directory = tempfile::tempdir().unwrap();
        let mut xz = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).unwrap();
        xz.write_all(begin.as_bytes()).unwrap();
        for _ in 0..zeros / 1024 {
            xz.write_all(&b"0,".repeat(1024)).unwrap();
        }
        let bytes = xz.finish().unwrap();
        fs::write(directory.path().join(PACKED_NAME), &bytes).unwrap();
        (directory, bytes.len() as u64)
    }

    #[test]
    fn what_unpacks_to_far_more_than_results_is_refused_before_it_is_in_memory() {
        let head = format!("{{\n  \"digest\": \"{}\",\n  \"unknown\": [", "0".repeat(64));
        for begin in [head.as_str(), "[", "{\"version\": 1, \"provenance\": ["] {
            let (directory, size) = packed(begin, 32 << 20);
            assert!(size < 1 << 20, "{size}");
            let error = super::super::read(directory.path()).err().unwrap();
            assert!(matches!(error, ResultsError::Unpacks { .. }), "{begin}: {error}");
            let mut unpacked = ContentRange::at(directory.path()).unwrap().open().unwrap();
            let read = io::copy(&mut unpacked, &mut io::sink());
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        }
        let (directory, _) = packed("[", 1 << 20);
        assert!(io::copy(&mut ContentRange::at(directory.path()).unwrap().open().unwrap(), &mut io::sink()).is_ok());
    }
}

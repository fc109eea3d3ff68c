// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a results file, compressed or not.

use std::{
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use lzma_rust2::XzReader;

use super::{FILE_NAME, MAX_FILE, PACKED_NAME, ResultsError};
use crate::disk;

/// Memory that decompressing may take, in KiB: four times what `xz -9` asks for.
const MAX_MEMORY: u32 = 256 << 10;

/// Where they are.
pub(super) struct Content {
    pub(super) path: PathBuf,
    is_packed: bool,
}

impl Content {
    /// Of the file at `path`, or in the results directory there.
    pub(super) fn at(path: &Path) -> Self {
        let named = match path.is_dir() {
            true if !path.join(FILE_NAME).exists() && path.join(PACKED_NAME).exists() => path.join(PACKED_NAME),
            true => path.join(FILE_NAME),
            false => path.to_path_buf(),
        };
        let is_packed = named.extension().is_some_and(|extension| extension == "xz");
        Self { path: named, is_packed }
    }

    /// Reads from the beginning.
    ///
    /// # Errors
    /// [`ResultsError::Io`] or [`ResultsError::NotAFile`] where the file cannot be opened, [`ResultsError::TooLarge`].
    pub(super) fn open(&self) -> Result<Box<dyn Read>, ResultsError> {
        let failed = |source| self.error(source);
        let file = disk::regular(&self.path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() > MAX_FILE {
            return Err(ResultsError::TooLarge { path: self.path.clone() });
        }
        Ok(match self.is_packed {
            true => Box::new(XzReader::new_mem_limit(BufReader::new(file.take(MAX_FILE)), false, MAX_MEMORY)),
            false => Box::new(file),
        })
    }

    /// Reads a compressed file to its end, where its checksums are: what is damaged may begin as anything.
    ///
    /// # Errors
    /// [`ResultsError::Damaged`], and those of [`Self::open`].
    pub(super) fn check(&self) -> Result<(), ResultsError> {
        if self.is_packed {
            io::copy(&mut self.open()?.take(MAX_FILE), &mut io::sink()).map_err(|source| self.error(source))?;
        }
        Ok(())
    }

    /// What an error of reading means.
    pub(super) fn error(&self, source: io::Error) -> ResultsError {
        match source.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof
                if self.is_packed =>
            {
                ResultsError::Damaged { path: self.path.clone() }
            }
            _ => ResultsError::io("read", &self.path, source),
        }
    }
}

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
    pub(super) fn open(&self) -> io::Result<Box<dyn Read>> {
        let file = disk::regular(&self.path)?;
        Ok(match self.is_packed {
            true => Box::new(XzReader::new_mem_limit(BufReader::new(file.take(MAX_FILE)), false, MAX_MEMORY)),
            false => Box::new(file),
        })
    }

    /// How many bytes the file has.
    pub(super) fn size(&self) -> io::Result<u64> {
        Ok(disk::regular(&self.path)?.metadata()?.len())
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

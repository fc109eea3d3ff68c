// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encodes a stage as one sequence of bytes, for programs that have it compiled in. Each file
//! consists of the lengths of path and content (32 bits each, little-endian), the path, and the
//! content. The lock file comes first.

use std::collections::{BTreeMap, BTreeSet};

use super::{OF_WORKSPACE, Result, Stage, StageError};

impl Stage {
    /// Encodes the files and the whole lock file. The same files give the same bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let lock = (OF_WORKSPACE.lock, self.lock.as_bytes());
        let files = self.files.iter().map(|(path, content)| (path.as_str(), content.as_slice()));
        for (path, content) in [lock].into_iter().chain(files) {
            for part in [path.as_bytes(), content] {
                // No file that was read is that long.
                bytes.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
            }
            bytes.extend(path.as_bytes());
            bytes.extend(content);
        }
        bytes
    }

    /// Returns the part that `packages` need of the stage in `bytes`, which come from
    /// [`Stage::to_bytes`].
    ///
    /// # Errors
    /// [`StageError::Bytes`] if the bytes are not a stage; those of [`Stage::part`].
    pub fn from_bytes(bytes: &[u8], packages: &[&str]) -> Result<Self> {
        let mut reader = Reader { bytes, at: 0 };
        let (mut files, mut lock) = (BTreeMap::new(), None);
        while reader.at < bytes.len() {
            let (path, content) = (reader.length()?, reader.length()?);
            let at = reader.at;
            let path = reader.text(path)?;
            // The files will be written below a directory.
            let stays = |part: &str| !["", ".", ".."].contains(&part);
            if !path.split('/').all(stays) || path.contains('\\') {
                return Err(StageError::Bytes { problem: "a path that leaves its directory", at });
            }
            if lock.is_none() && path == OF_WORKSPACE.lock {
                lock = Some(reader.text(content)?.to_owned());
            } else if files.insert(path.to_owned(), reader.take(content)?.to_owned()).is_some() {
                return Err(StageError::Bytes { problem: "a second file of the same path", at });
            }
        }
        let lock = lock.ok_or(StageError::Bytes { problem: "no lock file", at: reader.at })?;
        Self { files, lock, packages: BTreeSet::new(), digest: [0; 32] }.part(packages)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(length);
        let part = end.and_then(|end| self.bytes.get(self.at..end));
        let part = part.ok_or(StageError::Bytes { problem: "an end before the end of a file", at: self.at })?;
        self.at += length;
        Ok(part)
    }

    fn length(&mut self) -> Result<usize> {
        let mut length = [0; 4];
        length.copy_from_slice(self.take(4)?);
        Ok(u32::from_le_bytes(length) as usize)
    }

    fn text(&mut self, length: usize) -> Result<&'a str> {
        let at = self.at;
        std::str::from_utf8(self.take(length)?).map_err(|_| StageError::Bytes { problem: "text that is not UTF-8", at })
    }
}

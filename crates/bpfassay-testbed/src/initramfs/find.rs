// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads one small file from an archive on disk, without the rest.

use std::{
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::Path,
};

use super::{ArchiveError, MAX_PATH, TRAILER};

const HEADER: usize = super::HEADER as usize;
/// Offsets in the header: the file's mode, its size, and the length of its name.
const MODE: usize = 6 + 8;
const SIZE: usize = 6 + 8 * 6;
const NAME_LENGTH: usize = 6 + 8 * 11;

/// Returns the content of the file `wanted` (with or without leading slash) in the archive at
/// `path`, if it exists. Files of more than `limit` bytes are refused.
///
/// # Errors
/// [`ArchiveError::Read`] if the archive cannot be read. [`ArchiveError::Malformed`] if it is not a
/// newc archive.
pub fn find(path: &Path, wanted: &str, limit: u64) -> Result<Option<Vec<u8>>, ArchiveError> {
    let file = bpfassay_input::open(path).map_err(|source| ArchiveError::Read { path: path.to_owned(), source })?;
    find_in(BufReader::new(file), wanted, limit).map_err(|source| match source.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            ArchiveError::Malformed { path: path.to_owned(), source }
        }
        _ => ArchiveError::Read { path: path.to_owned(), source },
    })
}

/// Returns the content of the file `wanted` in a newc archive, or `None` if it has no such file.
///
/// # Errors
/// The errors of `reader`. [`io::ErrorKind::InvalidData`] if this is not a newc archive, or if the
/// file is larger than `limit`.
pub(crate) fn find_in(mut reader: impl Read + Seek, wanted: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let wanted = wanted.strip_prefix('/').unwrap_or(wanted);
    let mut at = 0u64;
    while let Some(EntryHeader { name, size, length, .. }) = EntryHeader::read(&mut reader, at)? {
        let body = (at + length).next_multiple_of(4);
        reader.seek(SeekFrom::Start(body))?;
        if name == wanted.as_bytes() {
            if size > limit {
                return Err(invalid(at, "a file that is larger than it may be"));
            }
            let mut content = vec![0; size as usize];
            reader.read_exact(&mut content)?;
            return Ok(Some(content));
        }
        at = (body + size).next_multiple_of(4);
        reader.seek(SeekFrom::Start(at))?;
    }
    Ok(None)
}

/// The bytes before an entry's content.
pub(super) struct EntryHeader {
    /// Path of the entry.
    pub(super) name: Vec<u8>,
    /// Kind and permissions, as in `st_mode`.
    pub(super) mode: u32,
    /// Bytes of content.
    pub(super) size: u64,
    /// Bytes of header and name, without padding.
    pub(super) length: u64,
}

impl EntryHeader {
    /// Reads the header at the position of `reader`, byte `at` of the archive. `None`: the trailer.
    ///
    /// # Errors
    /// The errors of `reader`. [`io::ErrorKind::InvalidData`] if there is no header.
    pub(super) fn read(reader: &mut impl Read, at: u64) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER];
        reader.read_exact(&mut header)?;
        if !header.starts_with(b"070701") {
            return Err(invalid(at, "no header of a newc archive"));
        }
        let field = |from: usize| {
            std::str::from_utf8(&header[from..from + 8]).ok().and_then(|text| u32::from_str_radix(text, 16).ok())
        };
        let (Some(mode), Some(size), Some(name_length)) = (field(MODE), field(SIZE), field(NAME_LENGTH)) else {
            return Err(invalid(at, "a header with a field that is no number"));
        };
        if name_length == 0 || name_length as usize > MAX_PATH + 1 {
            return Err(invalid(at, "a name that is empty or too long"));
        }
        let mut name = vec![0; name_length as usize];
        reader.read_exact(&mut name)?;
        name.pop();
        let length = (HEADER + name_length as usize) as u64;
        Ok((name != TRAILER.as_bytes()).then_some(Self { name, mode, size: u64::from(size), length }))
    }
}

fn invalid(at: u64, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} at byte {at}"))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;
    use crate::test_support::small_archive as archive;

    #[test]
    fn files_are_found_by_their_path() {
        for (path, content) in [("/a/b", Some("first")), ("a/c", Some("")), ("x", Some("last")), ("y", None)] {
            let found = find_in(Cursor::new(archive()), path, 100).unwrap();
            assert_eq!(found.as_deref(), content.map(str::as_bytes), "{path}");
        }
    }

    #[test]
    fn what_is_too_large_or_no_archive_is_refused() {
        assert!(find_in(Cursor::new(archive()), "x", 3).is_err());
        assert!(find_in(Cursor::new(archive()), "y", 3).unwrap().is_none());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        std::fs::write(&path, &archive()[..300]).unwrap();
        assert!(matches!(find(&path, "y", 9), Err(ArchiveError::Malformed { .. })));
        assert!(matches!(find(directory.path(), "y", 9), Err(ArchiveError::Read { .. })));
    }

    proptest! {
        #[test]
        fn damage_ends_in_an_answer_or_an_error(at in 0usize..700, value: u8, length in 0usize..1100) {
            let mut bytes = archive();
            bytes[at] = value;
            bytes.truncate(length);
            let _ = find_in(Cursor::new(bytes), "x", 100);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads an archive from start to end as it arrives, such as from a decompressed stream.

use std::io::{self, Read};

use super::find::EntryHeader;

/// `S_IFMT` and `S_IFREG` of `st_mode` (linux/stat.h).
const KIND: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;

/// Iterates over the entries of an archive. Reading from it gives the content of the entry that
/// [`Entries::next`] returned last.
pub(crate) struct Entries<R> {
    reader: R,
    /// How many bytes of the archive were read.
    at: u64,
    /// How many bytes of the content are unread.
    left: u64,
}

/// An entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewcEntry {
    /// The path. Bytes that are not UTF-8 are replaced.
    pub(crate) name: String,
    /// Whether the entry is a regular file.
    pub(crate) is_file: bool,
    /// Bytes of content.
    pub(crate) size: u64,
}

impl<R: Read> Entries<R> {
    /// Reads the archive at the start of `reader`.
    pub(crate) const fn new(reader: R) -> Self {
        Self { reader, at: 0, left: 0 }
    }

    /// Skips the rest of the current entry and returns the next one, or `None` at the end.
    ///
    /// # Errors
    /// The errors of the reader. [`io::ErrorKind::InvalidData`] or [`io::ErrorKind::UnexpectedEof`]
    /// if the data is not a newc archive, or is cut off.
    pub(crate) fn next(&mut self) -> io::Result<Option<NewcEntry>> {
        let end = (self.at + self.left).next_multiple_of(4);
        self.skip_to(end)?;
        let Some(EntryHeader { name, mode, size, length }) = EntryHeader::read(&mut self.reader, self.at)? else {
            return Ok(None);
        };
        self.at += length;
        self.skip_to(self.at.next_multiple_of(4))?;
        self.left = size;
        let name = String::from_utf8_lossy(&name).into_owned();
        Ok(Some(NewcEntry { name, is_file: mode & KIND == REGULAR, size }))
    }

    fn skip_to(&mut self, end: u64) -> io::Result<()> {
        let missing = end - self.at;
        let skipped = io::copy(&mut self.reader.by_ref().take(missing), &mut io::sink())?;
        (self.at, self.left) = (end, 0);
        if skipped == missing { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl<R: Read> Read for Entries<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.reader.by_ref().take(self.left).read(buffer)?;
        if length == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += length as u64;
        self.left -= length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::small_archive as archive;

    fn entries(bytes: &[u8], read: impl Fn(&str) -> bool) -> io::Result<Vec<(String, bool, Option<String>)>> {
        let mut entries = Entries::new(bytes);
        let mut found = Vec::new();
        while let Some(entry) = entries.next()? {
            let mut content = String::new();
            let is_read = read(&entry.name);
            if is_read {
                entries.read_to_string(&mut content)?;
            }
            found.push((entry.name, entry.is_file, is_read.then_some(content)));
        }
        Ok(found)
    }

    #[test]
    fn entries_come_in_order_whether_or_not_their_content_is_read() {
        let some = |text: &str| Some(text.to_owned());
        let name = |name: &str| name.to_owned();
        let all = entries(&archive(), |_| true).unwrap();
        let expected = [
            (name("a"), false, some("")),
            (name("a/b"), true, some("first")),
            (name("a/c"), true, some("")),
            (name("x"), true, some("last")),
        ];
        assert_eq!(all, expected);
        let last = entries(&archive(), |name| name == "x").unwrap();
        assert_eq!(last[1], (name("a/b"), true, None));
        assert_eq!(last[3], expected[3]);
    }

    #[test]
    fn an_archive_that_is_cut_off_is_an_error() {
        let whole = archive();
        let end = whole.windows(10).position(|window| window == b"TRAILER!!!").unwrap();
        for length in 0..end {
            for is_read in [true, false] {
                assert!(entries(&whole[..length], |_| is_read).is_err(), "{length} bytes");
            }
        }
    }

    proptest! {
        #[test]
        fn damage_ends_in_entries_or_an_error(at in 0usize..700, value: u8, length in 0usize..1100) {
            let mut bytes = archive();
            bytes[at] = value;
            bytes.truncate(length);
            let _ = entries(&bytes, |_| true);
        }
    }
}

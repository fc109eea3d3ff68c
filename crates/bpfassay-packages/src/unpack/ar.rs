// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ar` archives, as `.deb` uses them (deb(5)): a sequence of members, without an index or long
//! names.

use std::io::{self, Read};

use super::{UnpackFault, stream::read_of, wrong};

/// The first bytes of an archive.
pub(super) const MAGIC: &[u8; 8] = b"!<arch>\n";
/// Length of a member's header, in bytes.
const HEADER: usize = 60;

/// The members of an archive. Reads return the content of the member that [`Members::next`]
/// returned last.
pub(super) struct Members<R> {
    reader: R,
    left: u64,
    is_odd: bool,
}

impl<R: Read> Members<R> {
    /// Opens the archive at the start of `reader`.
    pub(super) fn new(mut reader: R) -> Result<Self, UnpackFault> {
        let mut magic = [0; MAGIC.len()];
        reader.read_exact(&mut magic)?;
        if magic != *MAGIC {
            return wrong("it does not begin as a .deb does");
        }
        Ok(Self { reader, left: 0, is_odd: false })
    }

    /// Skips the rest of the current member. Returns the name of the next, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<String>, UnpackFault> {
        let skip = self.left + u64::from(self.is_odd);
        if io::copy(&mut self.reader.by_ref().take(skip), &mut io::sink())? != skip && self.left > 0 {
            return wrong("it is cut off");
        }
        let mut header = [0; HEADER];
        if self.reader.read(&mut header[..1])? == 0 {
            return Ok(None);
        }
        self.reader.read_exact(&mut header[1..])?;
        let field = |from: usize, to: usize| str::from_utf8(&header[from..to]).map(|text| text.trim_end_matches(' '));
        let (Ok(name), Ok(size), b"`\n") = (field(0, 16), field(48, 58), &header[58..]) else {
            return wrong("a member of it has no proper header");
        };
        let Ok(size) = size.parse::<u64>() else { return wrong("the size of a member is no number") };
        (self.left, self.is_odd) = (size, size % 2 == 1);
        Ok(Some(name.trim_end_matches('/').to_owned()))
    }
}

impl<R: Read> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        read_of(&mut self.reader, &mut self.left, buffer)
    }
}

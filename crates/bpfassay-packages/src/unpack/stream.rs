// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decompresses streams while they are read, with bounded memory and output.

use std::io::{self, BufRead, BufReader, Read};

use super::{UnpackFault, wrong};

/// Largest amount of memory for decompression, in KiB. The presets of xz need less than 70,000.
const MOST_MEMORY: u32 = 256 << 10;

/// Decompresses `reader` in the format that its first bytes show, or passes it through if they show
/// none. Reading more than `limit` bytes is an error.
pub(super) fn decompressed<'a>(reader: impl Read + 'a, limit: u64) -> Result<Bounded<'a>, UnpackFault> {
    let mut reader = BufReader::with_capacity(1 << 16, reader);
    let start = reader.fill_buf()?;
    let reader: Box<dyn Read + 'a> = if start.starts_with(b"\xfd7zXZ\0") {
        Box::new(lzma_rust2::XzReader::new_mem_limit(reader, true, MOST_MEMORY))
    } else if start.starts_with(b"\x28\xb5\x2f\xfd") {
        let decoder = ruzstd::decoding::StreamingDecoder::new(reader);
        Box::new(decoder.map_err(|error| UnpackFault::Package(format!("its zstd stream: {error}")))?)
    } else if start.starts_with(b"\x1f\x8b") {
        Box::new(flate2::bufread::MultiGzDecoder::new(reader))
    } else if start.starts_with(b"BZh") {
        return wrong(
            "it is compressed by bzip2, which is not read here: convert it with `rpmrebuild` or `dpkg-deb -Zxz`",
        );
    } else if start.starts_with(&[0x5d, 0, 0]) {
        let decoder = lzma_rust2::LzmaReader::new_mem_limit(reader, MOST_MEMORY, None);
        Box::new(decoder.map_err(|error| UnpackFault::Package(format!("its lzma stream: {error}")))?)
    } else {
        Box::new(reader)
    };
    Ok(Bounded::new(reader, limit))
}

/// A stream with a limit of bytes. Reading beyond it is an error.
pub struct Bounded<'a> {
    reader: Box<dyn Read + 'a>,
    left: u64,
    limit: u64,
}

impl<'a> Bounded<'a> {
    /// Limits `reader` to `limit` bytes.
    #[must_use]
    pub fn new(reader: Box<dyn Read + 'a>, limit: u64) -> Self {
        Self { reader, left: limit, limit }
    }
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !buffer.is_empty() {
            let mut more = [0];
            if self.reader.read(&mut more)? == 0 {
                return Ok(0);
            }
            let problem = format!("its content has more than {} bytes, far more than a file of its size", self.limit);
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let length = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let length = self.reader.read(buffer.get_mut(..length).unwrap_or_default())?;
        self.left -= length as u64;
        Ok(length)
    }
}

/// A reader of an entry's content. A premature end is an error.
pub(super) struct Whole<'a> {
    pub(super) reader: &'a mut dyn Read,
    /// Number of remaining bytes.
    pub(super) left: u64,
}

impl Read for Whole<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        read_of(self.reader, &mut self.left, buffer)
    }
}

/// Reads from the next `left` bytes of `reader` and counts them down. A premature end is an error.
pub(super) fn read_of(reader: &mut dyn Read, left: &mut u64, buffer: &mut [u8]) -> io::Result<usize> {
    let length = reader.take(*left).read(buffer)?;
    if length == 0 && *left > 0 && !buffer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    *left -= length as u64;
    Ok(length)
}

/// Reads `bytes` bytes of `reader` and drops them.
pub(super) fn skip(reader: &mut dyn Read, bytes: u64) -> Result<(), UnpackFault> {
    let skipped = io::copy(&mut reader.take(bytes), &mut io::sink())?;
    if skipped == bytes { Ok(()) } else { wrong("it is cut off") }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! RPM packages of the formats 3, 4 and 6: lead, signature header, header, and a compressed cpio
//! archive.
//!
//! Signatures are not checked, because no key is known. If the header has a digest of the
//! compressed archive, the digest is compared, so that damage is detected.

use std::{
    io::{self, Read},
    str::FromStr as _,
};

use super::{About, MOST_ENTRIES, Taker, UnpackFault, cpio, file_table::FileTable, stream::decompressed, wrong};
use crate::digest::{Digest, Hasher};

/// The first bytes of a package.
pub(super) const LEAD_MAGIC: [u8; 4] = [0xed, 0xab, 0xee, 0xdb];
/// Length of the lead, in bytes.
const LEAD: usize = 96;
/// The first bytes of a header: magic number and version. Four reserved bytes follow.
const HEADER_MAGIC: [u8; 4] = [0x8e, 0xad, 0xe8, 0x01];
/// Largest number of entries of a header, as in RPM (`HEADER_TAGS_MAX`).
const MOST_TAGS: u32 = 0xffff;
/// Largest data of a header, in bytes. RPM permits 256 MiB. Kernels have some MiB.
const MOST_DATA: u32 = 64 << 20;

/// Largest number of values of a tag that are read: one for each file.
const MOST_VALUES: usize = MOST_ENTRIES as usize;

/// Numbers of tags (lib/rpmtag.h of RPM).
mod tag {
    pub(super) const NAME: u32 = 1000;
    pub(super) const VERSION: u32 = 1001;
    pub(super) const RELEASE: u32 = 1002;
    pub(super) const EPOCH: u32 = 1003;
    pub(super) const ARCH: u32 = 1022;
    pub(super) const FILE_SIZES: u32 = 1028;
    pub(super) const FILE_MODES: u32 = 1030;
    pub(super) const FILE_LINKS: u32 = 1036;
    pub(super) const DIRECTORY_INDEXES: u32 = 1116;
    pub(super) const BASE_NAMES: u32 = 1117;
    pub(super) const DIRECTORY_NAMES: u32 = 1118;
    pub(super) const PAYLOAD_FORMAT: u32 = 1124;
    pub(super) const LONG_FILE_SIZES: u32 = 5008;
    pub(super) const PAYLOAD_DIGEST: u32 = 5092;
    pub(super) const PAYLOAD_DIGEST_KIND: u32 = 5093;
}

/// SHA-256 in the numbering of digests (RFC 4880, section 9.4).
const SHA_256: u64 = 8;

/// Passes every entry of the package in `reader` to `take`, and returns the package's description.
pub(super) fn read(mut reader: impl Read, limit: u64, take: &mut Taker<'_>) -> Result<About, UnpackFault> {
    let RpmHeader { about, table, digest } = RpmHeader::read(&mut reader)?;
    let mut hashed = Hashed { reader: &mut reader, hasher: Hasher::default() };
    cpio::read(&mut decompressed(&mut hashed, limit)?, &table, take)?;
    // Bytes after the archive are part of the digest.
    io::copy(&mut hashed.by_ref().take(limit), &mut io::sink())?;
    match digest {
        Some(expected) if hashed.hasher.finish() != expected => {
            wrong("its content has another digest than its header names")
        }
        _ => Ok(about),
    }
}

/// The package's data before the archive.
pub(super) struct RpmHeader {
    pub(super) about: About,
    table: FileTable,
    digest: Option<Digest>,
}

impl RpmHeader {
    /// Reads the headers of the package at the start of `reader`.
    pub(super) fn read(reader: &mut impl Read) -> Result<Self, UnpackFault> {
        let mut lead = [0; LEAD];
        reader.read_exact(&mut lead)?;
        if !lead.starts_with(&LEAD_MAGIC) {
            return wrong("it does not begin as an .rpm does");
        }
        let signature = Tags::read(reader)?;
        let padding = signature.length().next_multiple_of(8) - signature.length();
        reader.read_exact(&mut [0; 8][..padding])?;
        let tags = Tags::read(reader)?;
        let text = |number: u32, what: &str| {
            tags.text(number).ok_or_else(|| UnpackFault::Package(format!("its header has no {what}")))
        };
        if let Some(format) = tags.text(tag::PAYLOAD_FORMAT).filter(|format| format != "cpio") {
            return wrong(format!("its content is of the form `{}` and not of cpio", format.escape_debug()));
        }
        let version = format!("{}-{}", text(tag::VERSION, "version")?, text(tag::RELEASE, "release")?);
        let version = match tags.numbers(tag::EPOCH).first() {
            Some(epoch) => format!("{epoch}:{version}"),
            None => version,
        };
        let (name, architecture) = (text(tag::NAME, "name")?, text(tag::ARCH, "architecture")?);
        let about = About { name: name.parse()?, version: version.parse()?, architecture: architecture.parse()? };
        let is_sha_256 = tags.numbers(tag::PAYLOAD_DIGEST_KIND).first() == Some(&SHA_256);
        let digest = tags.text(tag::PAYLOAD_DIGEST).filter(|_| is_sha_256);
        let digest = digest.and_then(|digest| Digest::from_str(&digest).ok());
        Ok(Self { about, table: file_table(&tags), digest })
    }
}

/// A header: an index of tags, and their data.
struct Tags {
    /// Number, kind, offset in the data, count.
    index: Vec<[u32; 4]>,
    data: Vec<u8>,
}

impl Tags {
    fn read(reader: &mut impl Read) -> Result<Self, UnpackFault> {
        let mut start = [0; 16];
        reader.read_exact(&mut start)?;
        if !start.starts_with(&HEADER_MAGIC) {
            return wrong("a header of it does not begin as one");
        }
        let (count, size) = (word(&start, 8), word(&start, 12));
        if count > MOST_TAGS || size > MOST_DATA {
            return wrong("a header of it is larger than any is");
        }
        let mut index = Vec::new();
        for _ in 0..count {
            let mut entry = [0; 16];
            reader.read_exact(&mut entry)?;
            index.push([0, 4, 8, 12].map(|at| word(&entry, at)));
        }
        let mut data = Vec::new();
        reader.take(u64::from(size)).read_to_end(&mut data)?;
        if data.len() as u64 != u64::from(size) {
            return wrong("it is cut off");
        }
        Ok(Self { index, data })
    }

    /// Returns the length of the header in bytes.
    fn length(&self) -> usize {
        16 + 16 * self.index.len() + self.data.len()
    }

    /// Returns the kind, the data from its offset on, and the count of a tag.
    fn find(&self, number: u32) -> Option<(u32, &[u8], usize)> {
        let [_, kind, at, count] = self.index.iter().find(|[of, ..]| *of == number)?;
        Some((*kind, self.data.get(*at as usize..)?, *count as usize))
    }

    /// Returns the strings of a tag. Returns none if it has another type or is cut short.
    fn texts(&self, number: u32) -> Vec<&[u8]> {
        // STRING, STRING_ARRAY and I18NSTRING.
        let Some((6 | 8 | 9, data, count @ ..=MOST_VALUES)) = self.find(number) else { return Vec::new() };
        let mut texts: Vec<_> = data.split(|&byte| byte == 0).take(count).collect();
        // A string after the last NUL is not terminated.
        if texts.iter().map(|text| text.len() + 1).sum::<usize>() > data.len() {
            texts.clear();
        }
        texts
    }

    fn text(&self, number: u32) -> Option<String> {
        self.texts(number).first().map(|text| String::from_utf8_lossy(text).into_owned())
    }

    /// Returns the numbers of a tag. Returns none if it has another type or is cut short.
    fn numbers(&self, number: u32) -> Vec<u64> {
        let Some((kind, data, count @ ..=MOST_VALUES)) = self.find(number) else { return Vec::new() };
        let size = match kind {
            3 => 2,
            4 => 4,
            5 => 8,
            _ => return Vec::new(),
        };
        let whole = count.checked_mul(size).and_then(|length| data.get(..length));
        let value = |bytes: &[u8]| bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
        whole.unwrap_or_default().chunks(size).map(value).collect()
    }
}

fn word(bytes: &[u8; 16], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

fn file_table(tags: &Tags) -> FileTable {
    let texts = |number| tags.texts(number).into_iter().map(<[u8]>::to_vec).collect();
    let sizes = Some(tags.numbers(tag::LONG_FILE_SIZES)).filter(|sizes| !sizes.is_empty());
    FileTable {
        names: texts(tag::BASE_NAMES),
        directories: texts(tag::DIRECTORY_NAMES),
        places: tags.numbers(tag::DIRECTORY_INDEXES),
        modes: tags.numbers(tag::FILE_MODES),
        sizes: sizes.unwrap_or_else(|| tags.numbers(tag::FILE_SIZES)),
        links: texts(tag::FILE_LINKS),
    }
}

/// A reader that hashes the bytes it reads.
struct Hashed<R> {
    reader: R,
    hasher: Hasher,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.reader.read(buffer)?;
        self.hasher.update(buffer.get(..length).unwrap_or_default());
        Ok(length)
    }
}

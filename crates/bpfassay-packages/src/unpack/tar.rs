// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tar archives, as `.deb` uses them: ustar with GNU tar's long names, and pax headers (pax(1),
//! tar(5)).

use std::io::{self, Read};

use super::{
    EntryKind, MOST_PATH, Taker, UnpackFault,
    stream::{Whole, skip},
    wrong,
};

/// Size of a block in bytes. Headers have one block, and contents are padded to whole blocks.
const BLOCK: usize = 512;
/// Largest set of pax headers, in bytes.
const MOST_PAX: u64 = 1 << 20;

/// Passes every entry of the archive in `reader` to `take`.
pub(super) fn read(reader: &mut dyn Read, take: &mut Taker<'_>) -> Result<(), UnpackFault> {
    // Data from headers that precede the entry's own header.
    let mut next = Next::default();
    loop {
        let mut block = [0; BLOCK];
        match read_block(reader, &mut block)? {
            // Two blocks of zeros end an archive. Some archives end with the file.
            false => return Ok(()),
            true if block.iter().all(|&byte| byte == 0) => return Ok(()),
            true => {}
        }
        let header = TarHeader { block: &block };
        header.check()?;
        let mut size = header.number(124, 12)?;
        let kind = block[156];
        match kind {
            b'L' => next.path = Some(long_name(reader, size)?),
            b'K' => next.link = Some(long_name(reader, size)?),
            b'x' => next.read_pax(&content(reader, size, MOST_PAX)?)?,
            // Global headers contain comments and the like.
            b'g' => drop(content(reader, size, MOST_PAX)?),
            _ => {
                let Next { path, link, size: given } = std::mem::take(&mut next);
                size = given.unwrap_or(size);
                let path = path.unwrap_or_else(|| header.path());
                let link = || link.unwrap_or_else(|| header.text(157, 100).to_vec());
                let executable = header.number(100, 8)? & 0o111 != 0;
                let kind = match kind {
                    // The older form of a directory.
                    0 | b'0' | b'7' if path.ends_with(b"/") => EntryKind::Directory,
                    0 | b'0' | b'7' => EntryKind::File { size, executable },
                    b'1' => EntryKind::Same(link()),
                    b'2' => EntryKind::Link(link()),
                    b'5' => EntryKind::Directory,
                    other => {
                        let name = String::from_utf8_lossy(&path).escape_debug().to_string();
                        return wrong(format!("`{name}` is of type `{}`, such as a device", other.escape_ascii()));
                    }
                };
                let size = if matches!(kind, EntryKind::File { .. }) { size } else { 0 };
                let mut whole = Whole { reader: &mut *reader, left: size };
                take(&path, kind, &mut whole)?;
                io::copy(&mut whole, &mut io::sink())?;
                skip(reader, padding(size))?;
            }
        }
    }
}

/// Data from extra headers before an entry, which override the data of the entry's header.
#[derive(Default)]
struct Next {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Next {
    /// Parses records `LENGTH KEY=VALUE\n`.
    fn read_pax(&mut self, mut text: &[u8]) -> Result<(), UnpackFault> {
        while !text.is_empty() {
            let record = || -> Option<(&[u8], &[u8], &[u8])> {
                let space = text.iter().position(|&byte| byte == b' ')?;
                let length: usize = str::from_utf8(&text[..space]).ok()?.parse().ok()?;
                let record = text.get(space + 1..length)?.strip_suffix(b"\n")?;
                let equals = record.iter().position(|&byte| byte == b'=')?;
                Some((&record[..equals], &record[equals + 1..], &text[length..]))
            };
            let Some((key, value, rest)) = record() else { return wrong("a pax header of it is malformed") };
            match key {
                b"path" => self.path = Some(bounded(value)?),
                b"linkpath" => self.link = Some(bounded(value)?),
                b"size" => {
                    let size = str::from_utf8(value).ok().and_then(|size| size.parse().ok());
                    self.size =
                        Some(size.ok_or_else(|| UnpackFault::Package("the size of an entry is no number".into()))?);
                }
                key if key.starts_with(b"GNU.sparse") => return wrong("it has sparse files, which are not read here"),
                _ => {}
            }
            text = rest;
        }
        Ok(())
    }
}

fn bounded(name: &[u8]) -> Result<Vec<u8>, UnpackFault> {
    if name.len() > MOST_PATH { wrong("the name of an entry is too long") } else { Ok(name.to_vec()) }
}

struct TarHeader<'a> {
    block: &'a [u8; BLOCK],
}

impl TarHeader<'_> {
    /// Checks the header's checksum.
    fn check(&self) -> Result<(), UnpackFault> {
        let is_sum = |at: usize| (148..156).contains(&at);
        let bytes = self.block.iter().enumerate();
        let sum: u64 = bytes.map(|(at, &byte)| if is_sum(at) { 32 } else { u64::from(byte) }).sum();
        if self.number(148, 8)? == sum { Ok(()) } else { wrong("a header of its archive is damaged") }
    }

    fn text(&self, from: usize, length: usize) -> &[u8] {
        let field = &self.block[from..from + length];
        field.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Parses a number in octal digits, or in GNU tar's binary form for larger numbers.
    fn number(&self, from: usize, length: usize) -> Result<u64, UnpackFault> {
        let field = &self.block[from..from + length];
        if let [0x80, rest @ ..] = field {
            let (high, low) = rest.split_at(rest.len().saturating_sub(8));
            let number = low.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
            return if high.iter().all(|&byte| byte == 0) { Ok(number) } else { wrong("a number of it is too large") };
        }
        let text = str::from_utf8(self.text(from, length)).map(str::trim);
        match text {
            Ok("") => Ok(0),
            Ok(text) => u64::from_str_radix(text, 8).or_else(|_| wrong("a number of it is malformed")),
            Err(_) => wrong("a number of it is malformed"),
        }
    }

    fn path(&self) -> Vec<u8> {
        let (name, prefix) = (self.text(0, 100), self.text(345, 155));
        // GNU's format uses ustar's prefix field for other data.
        if self.block[257..263] == *b"ustar\0" && !prefix.is_empty() {
            [prefix, b"/", name].concat()
        } else {
            name.to_vec()
        }
    }
}

/// Fills `block`. Returns false if the file ends before it.
fn read_block(reader: &mut dyn Read, block: &mut [u8; BLOCK]) -> Result<bool, UnpackFault> {
    loop {
        match reader.read(&mut block[..1]) {
            Ok(0) => return Ok(false),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    reader.read_exact(&mut block[1..])?;
    Ok(true)
}

fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}

fn content(reader: &mut dyn Read, size: u64, limit: u64) -> Result<Vec<u8>, UnpackFault> {
    if size > limit {
        return wrong("a header of its archive is too large");
    }
    let mut content = Vec::new();
    reader.take(size).read_to_end(&mut content)?;
    if content.len() as u64 != size {
        return wrong("it is cut off");
    }
    skip(reader, padding(size))?;
    Ok(content)
}

fn long_name(reader: &mut dyn Read, size: u64) -> Result<Vec<u8>, UnpackFault> {
    let mut name = content(reader, size, MOST_PATH as u64 + 1)?;
    while name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

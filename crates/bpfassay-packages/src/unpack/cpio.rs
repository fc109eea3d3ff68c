// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cpio archive in an RPM package. It is in newc format, or in the stripped format, in which
//! the package's header has everything but the contents. RPM uses the stripped format for large
//! files, and in packages of format 6.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use super::{
    EntryKind, MOST_PATH, Taker, UnpackFault,
    file_table::FileTable,
    stream::{Whole, skip},
    wrong,
};

/// Length of a newc header after its magic number, in bytes: 13 numbers of 8 hexadecimal digits.
const NEWC: usize = 13 * 8;
/// The name of the last entry, which ends an archive.
const TRAILER: &[u8] = b"TRAILER!!!";
/// File types in `st_mode` (linux/stat.h).
const KIND: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
/// Largest number of files with several names that wait for their content.
const MOST_WAITING: usize = 1 << 16;

/// The data of an entry that precede its content.
struct CpioEntry {
    path: Vec<u8>,
    mode: u32,
    size: u64,
    /// Device and inode numbers, if the file has several names.
    shared: Option<(u32, u32, u32)>,
    /// The target of a symbolic link, if it is not the content of the entry.
    link: Option<Vec<u8>>,
}

/// Passes every entry of the archive in `reader` to `take`. `table` contains the files in the
/// package's header.
pub(super) fn read(reader: &mut dyn Read, table: &FileTable, take: &mut Taker<'_>) -> Result<(), UnpackFault> {
    let mut at = 0;
    // The last of several names has the content. Earlier entries of the file are empty.
    let mut waiting: BTreeMap<(u32, u32, u32), Vec<Vec<u8>>> = BTreeMap::new();
    let mut count = 0;
    while let Some(entry) = next(reader, &mut at, table)? {
        let CpioEntry { path, mode, size, shared, link } = entry;
        let mut content = Whole { reader: &mut *reader, left: size };
        match mode & KIND {
            DIRECTORY => take(&path, EntryKind::Directory, &mut io::empty())?,
            LINK => {
                let target = match link {
                    Some(target) => target,
                    None if size > MOST_PATH as u64 => return wrong("the target of a link is too long"),
                    None => {
                        let mut target = Vec::new();
                        content.read_to_end(&mut target)?;
                        target
                    }
                };
                take(&path, EntryKind::Link(target), &mut io::empty())?;
            }
            REGULAR => match shared {
                Some(shared) if size == 0 => {
                    count += 1;
                    if count > MOST_WAITING {
                        return wrong("it has too many files with several names");
                    }
                    waiting.entry(shared).or_default().push(path);
                }
                shared => {
                    take(&path, EntryKind::File { size, executable: mode & 0o111 != 0 }, &mut content)?;
                    for other in shared.and_then(|shared| waiting.remove(&shared)).into_iter().flatten() {
                        take(&other, EntryKind::Same(path.clone()), &mut io::empty())?;
                    }
                }
            },
            _ => {
                let name = String::from_utf8_lossy(&path).escape_debug().to_string();
                return wrong(format!("`{name}` is neither file, directory nor link, such as a device"));
            }
        }
        io::copy(&mut content, &mut io::sink())?;
        at += size;
        pad(reader, &mut at)?;
    }
    // Files that are empty under all of their names.
    for names in waiting.into_values() {
        let [first, others @ ..] = names.as_slice() else { continue };
        take(first, EntryKind::File { size: 0, executable: false }, &mut io::empty())?;
        for other in others {
            take(other, EntryKind::Same(first.clone()), &mut io::empty())?;
        }
    }
    Ok(())
}

/// Reads the next entry. Returns `None` at the end.
fn next(reader: &mut dyn Read, at: &mut u64, table: &FileTable) -> Result<Option<CpioEntry>, UnpackFault> {
    let mut magic = [0; 6];
    reader.read_exact(&mut magic)?;
    *at += magic.len() as u64;
    match &magic {
        b"070701" | b"070702" => newc(reader, at),
        b"07070X" => stripped(reader, at, table).map(Some),
        _ => wrong("its archive is not of the form that RPM uses"),
    }
}

fn newc(reader: &mut dyn Read, at: &mut u64) -> Result<Option<CpioEntry>, UnpackFault> {
    let mut header = [0; NEWC];
    reader.read_exact(&mut header)?;
    let mut fields = [0; 13];
    for (field, digits) in fields.iter_mut().zip(header.chunks(8)) {
        *field = number(digits)?;
    }
    let [inode, mode, _, _, names, _, size, major, minor, _, _, length, _] = fields;
    let length = length as usize;
    if length == 0 || length > MOST_PATH {
        return wrong("the name of an entry is empty or too long");
    }
    let mut path = vec![0; length];
    reader.read_exact(&mut path)?;
    path.pop();
    *at += (NEWC + length) as u64;
    pad(reader, at)?;
    if path == TRAILER {
        return Ok(None);
    }
    let shared = (names > 1 && mode & KIND == REGULAR).then_some((major, minor, inode));
    Ok(Some(CpioEntry { path, mode, size: u64::from(size), shared, link: None }))
}

/// Reads an entry for which the archive has only an index. The package's header has the other data.
fn stripped(reader: &mut dyn Read, at: &mut u64, table: &FileTable) -> Result<CpioEntry, UnpackFault> {
    let mut digits = [0; 8];
    reader.read_exact(&mut digits)?;
    *at += digits.len() as u64;
    pad(reader, at)?;
    let file = usize::try_from(number(&digits)?).ok().and_then(|index| table.file(index));
    let file =
        file.ok_or_else(|| UnpackFault::Package("its archive has a file that its header does not have".to_owned()))?;
    // The header also contains the target of a link.
    let (size, link) = if file.mode & KIND == LINK { (0, Some(file.link)) } else { (file.size, None) };
    let size = if file.mode & KIND == REGULAR { size } else { 0 };
    Ok(CpioEntry { path: file.path, mode: file.mode, size, shared: None, link })
}

fn number(digits: &[u8]) -> Result<u32, UnpackFault> {
    let number = str::from_utf8(digits).ok().and_then(|text| u32::from_str_radix(text, 16).ok());
    number.ok_or_else(|| UnpackFault::Package("a number of its archive is malformed".to_owned()))
}

/// Skips padding: headers and contents begin at multiples of four.
fn pad(reader: &mut dyn Read, at: &mut u64) -> Result<(), UnpackFault> {
    let missing = at.next_multiple_of(4) - *at;
    *at += missing;
    skip(reader, missing)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What programs, maps and links have in common: ids, and information about them.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use crate::syscall::{Command, call, number, open};

/// What the kernel numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Programs.
    Program,
    /// Maps.
    Map,
    /// Links (Linux 5.8 and later).
    Link,
}

/// The part of `union bpf_attr` for ids.
#[repr(C)]
struct Ids {
    /// The id that is asked for, or the one behind which the walk goes on.
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// Ids of all objects of this kind. Objects that come or go meanwhile may or may not be among them.
///
/// # Errors
/// The kernel's error; `EINVAL` where it does not list objects of this kind.
pub fn ids(kind: Kind) -> io::Result<BTreeSet<u32>> {
    let command = match kind {
        Kind::Program => Command::ProgGetNextId,
        Kind::Map => Command::MapGetNextId,
        Kind::Link => Command::LinkGetNextId,
    };
    let mut walk = Ids { id: 0, next_id: 0, open_flags: 0 };
    let mut ids = BTreeSet::new();
    loop {
        // SAFETY: no addresses.
        match unsafe { call(command, &mut walk) } {
            Ok(_) => {
                ids.insert(walk.next_id);
                walk.id = walk.next_id;
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(ids),
            Err(error) => return Err(error),
        }
    }
}

/// A descriptor of the object of this kind with this id; `None` where there is none any more.
///
/// # Errors
/// The kernel's error where it refuses a descriptor (`CAP_SYS_ADMIN` or `CAP_BPF` is missing, or no descriptor is left); an id that is gone is no error.
pub fn by_id(kind: Kind, id: u32) -> io::Result<Option<OwnedFd>> {
    let command = match kind {
        Kind::Program => Command::ProgGetFdById,
        Kind::Map => Command::MapGetFdById,
        Kind::Link => Command::LinkGetFdById,
    };
    // SAFETY: no addresses; the commands return a new descriptor.
    match unsafe { open(command, &mut Ids { id, next_id: 0, open_flags: 0 }) } {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Information on a map (`struct bpf_map_info`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapInfo {
    /// Its type.
    pub kind: u32,
    /// Its id.
    pub id: u32,
    /// Its name, cut off behind 15 bytes.
    pub name: String,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Most entries.
    pub max_entries: u32,
    /// `BPF_F_…` that it was created with.
    pub flags: u32,
}

/// Asks the kernel about a map.
///
/// # Errors
/// The kernel's error where `map` is not a descriptor of a map, or the command fails.
pub fn map_info(map: BorrowedFd<'_>) -> io::Result<MapInfo> {
    let info = Info::of(map)?;
    Ok(MapInfo {
        kind: info.half(0),
        id: info.half(4),
        key_size: info.half(8),
        value_size: info.half(12),
        max_entries: info.half(16),
        flags: info.half(20),
        name: info.text(24),
    })
}

/// Bytes of information that are asked for: as many as what is read of any kind of object, and a multiple of eight.
const BYTES: usize = 224;

/// What the kernel returns about an object. The structures are part of its interface and only grow at their ends.
pub(crate) struct Info {
    bytes: [u8; BYTES],
    /// As many as this kernel filled in; the others are 0.
    pub(crate) length: usize,
}

impl Info {
    pub(crate) fn of(object: BorrowedFd<'_>) -> io::Result<Self> {
        let mut bytes = [0; BYTES];
        // SAFETY: addresses inside the buffer are 0, by which only lengths are asked for.
        let length = unsafe { Self::fill(object, &mut bytes)? };
        Ok(Self { bytes, length })
    }

    /// Has the kernel fill `buffer` with information on `object`, and what addresses in it point to. Returns how many bytes it knows of.
    ///
    /// # Safety
    /// Addresses in `buffer` are 0 or valid for as many elements as the numbers beside them.
    pub(crate) unsafe fn fill<T>(object: BorrowedFd<'_>, buffer: &mut T) -> io::Result<usize> {
        /// The part of `union bpf_attr` for questions about an object.
        #[repr(C)]
        struct Question {
            fd: u32,
            length: u32,
            address: u64,
        }
        let address = std::ptr::from_mut(buffer) as u64;
        let mut question = Question { fd: number(object), length: size_of::<T>() as u32, address };
        // SAFETY: the kernel writes at most `length` bytes to the buffer, and to addresses in it, for which the caller vouches.
        unsafe { call(Command::ObjGetInfoByFd, &mut question)? };
        Ok(question.length as usize)
    }

    /// Information that was written down, for tests.
    #[cfg(test)]
    pub(crate) fn from_parts(parts: &[(usize, &[u8])], length: usize) -> Self {
        let mut bytes = [0; BYTES];
        for (offset, part) in parts {
            bytes[*offset..][..part.len()].copy_from_slice(part);
        }
        Self { bytes, length }
    }

    /// The number of 64 bits at `offset`, which lies within [`BYTES`].
    pub(crate) fn whole(&self, offset: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[offset..offset + 8]);
        u64::from_ne_bytes(word)
    }

    /// The number of 32 bits there.
    pub(crate) fn half(&self, offset: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes[offset..offset + 4]);
        u32::from_ne_bytes(word)
    }

    /// The name there.
    pub(crate) fn text(&self, offset: usize) -> String {
        let name = self.bytes[offset..offset + 16].split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

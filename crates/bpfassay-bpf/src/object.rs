// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ids of programs, maps and links, and information about them.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use crate::syscall::{BpfCommand, call, number, open};

/// A kind of object with ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// Programs.
    Program,
    /// Maps.
    Map,
    /// Links (Linux 5.8 and later).
    Link,
}

/// The part of `union bpf_attr` for ids.
#[repr(C)]
struct ObjectIds {
    /// The id in question, or the id after which the walk continues.
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// Returns the ids of all objects of this kind. Concurrent changes may or may not show.
///
/// # Errors
/// The kernel's error; `EINVAL` if the kernel does not list objects of this kind.
pub fn ids(kind: ObjectKind) -> io::Result<BTreeSet<u32>> {
    let command = match kind {
        ObjectKind::Program => BpfCommand::ProgGetNextId,
        ObjectKind::Map => BpfCommand::MapGetNextId,
        ObjectKind::Link => BpfCommand::LinkGetNextId,
    };
    let mut walk = ObjectIds { id: 0, next_id: 0, open_flags: 0 };
    let mut ids = BTreeSet::new();
    loop {
        // SAFETY: there are no addresses.
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

/// Opens the object of this kind with this id; `None` if it no longer exists.
///
/// # Errors
/// The kernel's error if it refuses a descriptor: `CAP_SYS_ADMIN` or `CAP_BPF` is missing, or no
/// descriptor is left. A missing id is not an error.
pub fn by_id(kind: ObjectKind, id: u32) -> io::Result<Option<OwnedFd>> {
    let command = match kind {
        ObjectKind::Program => BpfCommand::ProgGetFdById,
        ObjectKind::Map => BpfCommand::MapGetFdById,
        ObjectKind::Link => BpfCommand::LinkGetFdById,
    };
    // SAFETY: there are no addresses, and the commands return a new descriptor.
    match unsafe { open(command, &mut ObjectIds { id, next_id: 0, open_flags: 0 }) } {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Information on a map (`struct bpf_map_info`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapInfo {
    /// The map's type.
    pub kind: u32,
    /// The map's id.
    pub id: u32,
    /// The map's name, truncated to 15 bytes.
    pub name: String,
    /// Size of a key in bytes.
    pub key_size: u32,
    /// Size of a value in bytes.
    pub value_size: u32,
    /// Maximum number of entries.
    pub max_entries: u32,
    /// Flags (`BPF_F_…`) of the map's creation.
    pub flags: u32,
}

/// Asks the kernel about a map.
///
/// # Errors
/// The kernel's error if `map` is not a descriptor of a map, or the command fails.
pub fn map_info(map: BorrowedFd<'_>) -> io::Result<MapInfo> {
    let info = ObjectInfo::of(map)?;
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

/// Buffer size in bytes: a multiple of eight that covers all that is read of any kind of object.
const BYTES: usize = 224;

/// The kernel's information about an object. The structures are stable and only grow at the end.
pub(crate) struct ObjectInfo {
    bytes: [u8; BYTES],
    /// Number of bytes that this kernel filled in. The others are 0.
    pub(crate) length: usize,
}

impl ObjectInfo {
    pub(crate) fn of(object: BorrowedFd<'_>) -> io::Result<Self> {
        let mut bytes = [0; BYTES];
        // SAFETY: addresses inside the buffer are 0, so the kernel returns only lengths.
        let length = unsafe { Self::fill(object, &mut bytes)? };
        Ok(Self { bytes, length })
    }

    /// Makes the kernel fill `buffer` and the memory that addresses in it point to with information
    /// on `object`. Returns the number of bytes that the kernel knows.
    ///
    /// # Safety
    /// Addresses in `buffer` are 0, or valid for as many elements as the numbers next to them say.
    pub(crate) unsafe fn fill<T>(object: BorrowedFd<'_>, buffer: &mut T) -> io::Result<usize> {
        /// The part of `union bpf_attr` for `BPF_OBJ_GET_INFO_BY_FD`.
        #[repr(C)]
        struct Question {
            fd: u32,
            length: u32,
            address: u64,
        }
        let address = std::ptr::from_mut(buffer) as u64;
        let mut question = Question { fd: number(object), length: size_of::<T>() as u32, address };
        // SAFETY: the kernel writes at most `length` bytes to the buffer. It also writes to
        // addresses in the buffer, for which the caller vouches.
        unsafe { call(BpfCommand::ObjGetInfoByFd, &mut question)? };
        Ok(question.length as usize)
    }

    /// Prepared information, for tests.
    #[cfg(test)]
    pub(crate) fn from_parts(parts: &[(usize, &[u8])], length: usize) -> Self {
        let mut bytes = [0; BYTES];
        for (offset, part) in parts {
            bytes[*offset..][..part.len()].copy_from_slice(part);
        }
        Self { bytes, length }
    }

    /// Reads the 64-bit number at `offset`, which must lie within [`BYTES`].
    pub(crate) fn whole(&self, offset: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[offset..offset + 8]);
        u64::from_ne_bytes(word)
    }

    /// Reads the 32-bit number at `offset`.
    pub(crate) fn half(&self, offset: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes[offset..offset + 4]);
        u32::from_ne_bytes(word)
    }

    /// Reads the name at `offset`.
    pub(crate) fn text(&self, offset: usize) -> String {
        let name = self.bytes[offset..offset + 16].split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

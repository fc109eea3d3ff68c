// SPDX-License-Identifier: MIT OR Apache-2.0
//! The raw system call.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

/// Commands (`enum bpf_cmd`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BpfCommand {
    MapCreate = 0,
    MapLookupElem = 1,
    MapUpdateElem = 2,
    MapDeleteElem = 3,
    ProgLoad = 5,
    ProgTestRun = 10,
    ProgGetNextId = 11,
    MapGetNextId = 12,
    ProgGetFdById = 13,
    MapGetFdById = 14,
    ObjGetInfoByFd = 15,
    RawTracepointOpen = 17,
    BtfGetFdById = 19,
    MapFreeze = 22,
    MapLookupBatch = 24,
    LinkCreate = 28,
    LinkGetFdById = 30,
    LinkGetNextId = 31,
    EnableStats = 32,
    IterCreate = 33,
    TokenCreate = 36,
}

/// Calls the kernel with a command's part of `union bpf_attr`. Returns the kernel's result.
///
/// # Errors
/// The kernel's error.
///
/// # Safety
/// Addresses in `attributes` are 0, or valid for the command's reads and writes.
pub(crate) unsafe fn call<T>(command: BpfCommand, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes within the attributes, whose size it gets. It also uses
    // addresses in the attributes, for which the caller vouches.
    let status = unsafe {
        libc::syscall(libc::SYS_bpf, command as libc::c_long, std::ptr::from_mut(attributes), size_of::<T>())
    };
    // Descriptors and zero fit into an `i32`.
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(status as i32) }
}

/// Like [`call`], for a command that returns a descriptor.
///
/// # Errors
/// The kernel's error.
///
/// # Safety
/// The conditions of [`call`]. The command must return a new descriptor.
pub(crate) unsafe fn open<T>(command: BpfCommand, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for the addresses. The kernel has just created the descriptor, so
    // it has no other owner.
    unsafe { call(command, attributes).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// Returns a descriptor as a number for attributes.
pub(crate) fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// Returns a name for attributes, truncated to 15 bytes.
pub(crate) fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    for (to, byte) in name.iter_mut().take(15).zip(text.bytes()) {
        *to = byte;
    }
    name
}

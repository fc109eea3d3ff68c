// SPDX-License-Identifier: MIT OR Apache-2.0
//! The call itself.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

/// Commands (`enum bpf_cmd`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
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

/// Calls the kernel with the part of `union bpf_attr` that the command has; what it returns.
///
/// # Errors
/// The kernel's error.
///
/// # Safety
/// Addresses in `attributes` are 0 or valid for what the kernel reads and writes there by this command.
pub(crate) unsafe fn call<T>(command: Command, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes within the attributes, whose size goes with them, and at addresses in them, for which
    // the caller vouches.
    let status = unsafe {
        libc::syscall(libc::SYS_bpf, command as libc::c_long, std::ptr::from_mut(attributes), size_of::<T>())
    };
    // Descriptors and zero fit.
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(status as i32) }
}

/// The same for a command that makes a descriptor.
///
/// # Errors
/// The kernel's error.
///
/// # Safety
/// As [`call`], and the command returns a new descriptor.
pub(crate) unsafe fn open<T>(command: Command, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for the addresses; the kernel just made the descriptor, and nobody else owns it.
    unsafe { call(command, attributes).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// A descriptor as attributes have it.
pub(crate) fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// A name as attributes have it: 15 bytes at most.
pub(crate) fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    for (to, byte) in name.iter_mut().take(15).zip(text.bytes()) {
        *to = byte;
    }
    name
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls as safe functions. Each function makes one call through the C library, which
//! decides which system call it is on which architecture.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    ptr,
};

use libc::{c_int, c_void, iovec, off_t};

/// The number of pieces of a vectored call.
const PIECES: usize = 3;

/// Converts a call's return value into a number of bytes, or the error in `errno`.
pub(crate) fn bytes(returned: isize) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// Returns three uneven pieces of `length` bytes at `start`.
pub(crate) fn pieces(start: *mut u8, length: usize) -> [iovec; PIECES] {
    let (first, second) = (length / 4, length / 2);
    [(0, first), (first, second), (first + second, length - first - second)]
        .map(|(at, iov_len)| iovec { iov_base: start.wrapping_add(at).cast(), iov_len })
}

fn offset(at: usize) -> off_t {
    // Sizes are known to be far below the largest offset.
    at as off_t
}

/// Creates an empty regular file without opening it.
pub(crate) fn make_file(name: &Path) -> io::Result<()> {
    let name = CString::new(name.as_os_str().as_bytes())?;
    // SAFETY: the name ends with a zero byte.
    match unsafe { libc::mknod(name.as_ptr(), libc::S_IFREG | 0o644, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn read(file: &File, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `into` is valid for its length.
    bytes(unsafe { libc::read(file.as_raw_fd(), into.as_mut_ptr().cast(), into.len()) })
}

pub(crate) fn write(file: &File, from: &[u8]) -> io::Result<usize> {
    // SAFETY: `from` is valid for its length.
    bytes(unsafe { libc::write(file.as_raw_fd(), from.as_ptr().cast(), from.len()) })
}

pub(crate) fn pread(file: &File, into: &mut [u8], at: usize) -> io::Result<usize> {
    // SAFETY: `into` is valid for its length.
    bytes(unsafe { libc::pread(file.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), offset(at)) })
}

pub(crate) fn pwrite(file: &File, from: &[u8], at: off_t) -> io::Result<usize> {
    // SAFETY: `from` is valid for its length.
    bytes(unsafe { libc::pwrite(file.as_raw_fd(), from.as_ptr().cast(), from.len(), at) })
}

pub(crate) fn readv(file: &File, into: &mut [u8]) -> io::Result<usize> {
    let pieces = pieces(into.as_mut_ptr(), into.len());
    // SAFETY: the pieces are parts of `into`.
    bytes(unsafe { libc::readv(file.as_raw_fd(), pieces.as_ptr(), PIECES as c_int) })
}

pub(crate) fn writev(file: &File, from: &[u8]) -> io::Result<usize> {
    let pieces = pieces(from.as_ptr().cast_mut(), from.len());
    // SAFETY: the pieces are parts of `from`, which the kernel only reads.
    bytes(unsafe { libc::writev(file.as_raw_fd(), pieces.as_ptr(), PIECES as c_int) })
}

pub(crate) fn preadv(file: &File, into: &mut [u8], at: usize) -> io::Result<usize> {
    let pieces = pieces(into.as_mut_ptr(), into.len());
    // SAFETY: the pieces are parts of `into`.
    bytes(unsafe { libc::preadv(file.as_raw_fd(), pieces.as_ptr(), PIECES as c_int, offset(at)) })
}

pub(crate) fn pwritev(file: &File, from: &[u8], at: usize) -> io::Result<usize> {
    let pieces = pieces(from.as_ptr().cast_mut(), from.len());
    // SAFETY: the pieces are parts of `from`, which the kernel only reads.
    bytes(unsafe { libc::pwritev(file.as_raw_fd(), pieces.as_ptr(), PIECES as c_int, offset(at)) })
}

pub(crate) fn preadv2(file: &File, into: &mut [u8], at: usize, flags: c_int) -> io::Result<usize> {
    let pieces = pieces(into.as_mut_ptr(), into.len());
    // SAFETY: the pieces are parts of `into`.
    bytes(unsafe { libc::preadv2(file.as_raw_fd(), pieces.as_ptr(), PIECES as c_int, offset(at), flags) })
}

pub(crate) fn pwritev2(file: &File, from: &[u8], at: usize, flags: c_int) -> io::Result<usize> {
    let pieces = pieces(from.as_ptr().cast_mut(), from.len());
    // SAFETY: the pieces are parts of `from`, which the kernel only reads.
    bytes(unsafe { libc::pwritev2(file.as_raw_fd(), pieces.as_ptr(), PIECES as c_int, offset(at), flags) })
}

/// Moves bytes from the file's position to the position of `out`.
pub(crate) fn sendfile(out: RawFd, file: &File, length: usize) -> io::Result<usize> {
    // SAFETY: descriptors and a length only.
    bytes(unsafe { libc::sendfile(out, file.as_raw_fd(), ptr::null_mut(), length) })
}

/// Moves bytes between a file and a pipe, at the file's position.
pub(crate) fn splice(from: RawFd, to: RawFd, length: usize) -> io::Result<usize> {
    // SAFETY: descriptors and a length only.
    bytes(unsafe { libc::splice(from, ptr::null_mut(), to, ptr::null_mut(), length, 0) })
}

/// Moves bytes between two files, at their positions.
pub(crate) fn copy_file_range(from: &File, to: &File, length: usize) -> io::Result<usize> {
    // SAFETY: descriptors and a length only.
    bytes(unsafe {
        libc::copy_file_range(from.as_raw_fd(), ptr::null_mut(), to.as_raw_fd(), ptr::null_mut(), length, 0)
    })
}

pub(crate) fn fallocate(file: &File, length: usize) -> io::Result<()> {
    // SAFETY: a descriptor and a range only.
    bytes(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, offset(length)) } as isize).map(drop)
}

/// A shared mapping of a file's first bytes.
#[derive(Debug)]
pub(crate) struct Map {
    address: *mut c_void,
    length: usize,
}

impl Map {
    /// Maps the first `length` bytes. The file must not be shorter.
    pub(crate) fn new(file: &File, length: usize, writable: bool) -> io::Result<Self> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { address, length }) }
    }

    /// Loads every byte into `into`, which is as long as the mapping.
    pub(crate) fn load(&self, into: &mut [u8]) {
        assert_eq!(into.len(), self.length);
        // SAFETY: the mapping has this length, and nothing else writes to the file.
        unsafe { ptr::copy_nonoverlapping(self.address.cast::<u8>().cast_const(), into.as_mut_ptr(), self.length) }
    }

    /// Stores every byte of `from`, which is as long as the mapping. The mapping must be writable.
    pub(crate) fn store(&mut self, from: &[u8]) {
        assert_eq!(from.len(), self.length);
        // SAFETY: the mapping has this length, and nothing else reads it in the meantime.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.address.cast(), self.length) }
    }

    /// Writes stored bytes to the file system.
    pub(crate) fn sync(&self) -> io::Result<()> {
        // SAFETY: the mapping's own range.
        bytes(unsafe { libc::msync(self.address, self.length, libc::MS_SYNC) } as isize).map(drop)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping's own range, which nothing refers to any more.
        unsafe { libc::munmap(self.address, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_in_order_and_complete() {
        let mut memory = [0u8; 4099];
        let start = memory.as_mut_ptr();
        let pieces = pieces(start, memory.len());
        let mut next = start.cast::<c_void>();
        for piece in pieces {
            assert_eq!(piece.iov_base, next);
            next = next.wrapping_byte_add(piece.iov_len);
        }
        assert_eq!(next, start.wrapping_add(4099).cast());
        assert!(pieces[0].iov_len != pieces[1].iov_len);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! io_uring.

use std::{
    fs::File,
    io,
    ops::Range,
    os::fd::{AsRawFd as _, RawFd},
};

use bpfassay_protocol::operation::Direction;
use io_uring::{IoUring, opcode, squeue::Entry, types::Fd};
use libc::iovec;

use super::{aio::DEPTH, path_calls::pieces};

/// How a request names its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// An address and a length.
    Plain,
    Pieces,
    /// The registered buffer.
    Fixed,
}

pub(crate) struct Ring(IoUring);

impl Ring {
    /// Creates a ring.
    ///
    /// # Errors
    /// The kernel's error, from `io_uring_setup`.
    pub(crate) fn new() -> io::Result<Self> {
        IoUring::new(2 * DEPTH as u32).map(Self)
    }

    /// Registers `length` bytes at `memory` as buffer 0. They must live as long as the ring.
    ///
    /// # Errors
    /// The kernel's error, from `io_uring_register`.
    pub(crate) fn register(&self, memory: *mut u8, length: usize) -> io::Result<()> {
        let buffer = iovec { iov_base: memory.cast(), iov_len: length };
        // SAFETY: the caller keeps the memory valid.
        unsafe { self.0.submitter().register_buffers(&[buffer]) }
    }

    /// Transfers `ranges` of `file`, at most [`DEPTH`]. `memory` is the address that belongs to the
    /// file's first byte.
    ///
    /// # Errors
    /// The kernel's error, from `io_uring_enter`. Errors of requests are in the result.
    pub(crate) fn run(
        &mut self,
        direction: Direction,
        kind: Memory,
        file: &File,
        memory: *mut u8,
        ranges: &[Range<usize>],
    ) -> io::Result<Vec<io::Result<usize>>> {
        let fd = Fd(file.as_raw_fd());
        let vectors: Vec<[iovec; 3]> =
            ranges.iter().map(|range| pieces(memory.wrapping_add(range.start), range.len())).collect();
        let entries: Vec<Entry> = ranges
            .iter()
            .zip(&vectors)
            .map(|(range, vector)| {
                let (start, length, at) = (memory.wrapping_add(range.start), range.len() as u32, range.start as u64);
                match (direction, kind) {
                    (Direction::In, Memory::Plain) => opcode::Read::new(fd, start, length).offset(at).build(),
                    (Direction::Out, Memory::Plain) => opcode::Write::new(fd, start, length).offset(at).build(),
                    (Direction::In, Memory::Pieces) => {
                        opcode::Readv::new(fd, vector.as_ptr(), vector.len() as u32).offset(at).build()
                    }
                    (Direction::Out, Memory::Pieces) => {
                        opcode::Writev::new(fd, vector.as_ptr(), vector.len() as u32).offset(at).build()
                    }
                    (Direction::In, Memory::Fixed) => opcode::ReadFixed::new(fd, start, length, 0).offset(at).build(),
                    (Direction::Out, Memory::Fixed) => opcode::WriteFixed::new(fd, start, length, 0).offset(at).build(),
                }
            })
            .collect();
        self.complete(&entries)
    }

    /// Moves `length` bytes at `at` of `file` into a pipe.
    ///
    /// # Errors
    /// The kernel's error, for the ring or for the request.
    pub(crate) fn splice(&mut self, file: &File, pipe: RawFd, at: usize, length: usize) -> io::Result<usize> {
        let entry = opcode::Splice::new(Fd(file.as_raw_fd()), at as i64, Fd(pipe), -1, length as u32).build();
        self.complete(&[entry])?.pop().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Submits `entries`, waits for all of them, and returns their results by index.
    fn complete(&mut self, entries: &[Entry]) -> io::Result<Vec<io::Result<usize>>> {
        for (index, entry) in entries.iter().enumerate() {
            let entry = entry.clone().user_data(index as u64);
            // SAFETY: the callers keep what the entry refers to until this function has waited for
            // it.
            unsafe { self.0.submission().push(&entry) }.map_err(|_| io::Error::from(io::ErrorKind::StorageFull))?;
        }
        let mut results: Vec<io::Result<usize>> = Vec::new();
        results.resize_with(entries.len(), || Ok(0));
        let mut done = 0;
        while done < entries.len() {
            match self.0.submit_and_wait(entries.len() - done) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            for completed in self.0.completion() {
                if let Some(result) = results.get_mut(completed.user_data() as usize) {
                    *result = usize::try_from(completed.result())
                        .map_err(|_| io::Error::from_raw_os_error(-completed.result()));
                }
                done += 1;
            }
        }
        Ok(results)
    }
}

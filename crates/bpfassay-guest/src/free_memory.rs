// SPDX-License-Identifier: MIT OR Apache-2.0
//! Free memory as single pages, so that the kernel's page allocator does the same work in each run.
//!
//! The page allocator keeps free memory in blocks of 1, 2, 4, … pages. To allocate a page it splits a block, and it merges a page with its buddy when both
//! are free (`__rmqueue`, `__free_one_page`, mm/page_alloc.c). How often it does so in a phase depends on what all earlier runs have left. Counted by function,
//! this was most of the difference between whole writes of equal runs. Here every second page is allocated and kept, so that the pages between them have no
//! free buddy: they are allocated without splitting, and freed without merging.

use std::{
    ffi::CStr,
    fs::File,
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
};

use rustix::{
    fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create},
    param::page_size,
    pipe::fcntl_setpipe_size,
};

use crate::{
    error::{Error, Result},
    proc::meminfo,
    system,
};

/// The share of free memory that is taken for pages of files, in eighths; half of it is kept. What is free in single pages then holds the file of `quick` twice:
/// in the server's tmpfs, and in the client's page cache.
const OF_FILES: u64 = 3;

/// The share of free memory that is taken for pages of the kernel itself: one part in so many; half of it is kept.
const OF_KERNEL: u64 = 32;

/// The most that is taken for pages of the kernel, in bytes: the server and the network need a few MiB, and the size of a pipe is limited.
const MOST_OF_KERNEL: u64 = 64 << 20;

/// Name of the file that keeps pages, as `/proc/PID/fd` shows it.
const NAME: &CStr = c"bpfassay-pages";

/// Every second page of a part of the memory, taken for as long as this lives.
#[derive(Debug)]
pub(crate) struct KeptPages {
    _files: File,
    _kernel: (PipeReader, PipeWriter),
}

impl KeptPages {
    /// Takes every second page of the share of free memory that [`OF_FILES`] and [`OF_KERNEL`] name.
    ///
    /// # Errors
    /// Where the kernel does not show how much memory is free, or memory is short.
    pub(crate) fn take() -> Result<Self> {
        let text = system::read(meminfo::PATH)?;
        let free = meminfo::kib(&text, "MemFree").and_then(|kib| kib.checked_mul(1024));
        let free = free.ok_or_else(|| Error::unexpected(meminfo::PATH, "a line `MemFree: N kB`", &text))?;
        let page = page_size() as u64;
        let kernel = (free / OF_KERNEL).min(MOST_OF_KERNEL) / page;
        // The kernel keeps pages that can be moved, as those of files, and pages that cannot in different blocks, each with free pages of its own.
        Ok(Self {
            _files: every_second_of_file(free / 8 * OF_FILES / page, page)
                .map_err(Error::system("take every second page of a file in memory"))?,
            _kernel: every_second_of_pipes(kernel, page_size())
                .map_err(Error::system("take every second page of pipes"))?,
        })
    }
}

/// A file of `pages` pages in memory with a hole in place of every second one. Its pages are taken one after the other, and so lie side by side for the most part.
fn every_second_of_file(pages: u64, page: u64) -> io::Result<File> {
    let file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC)?);
    ftruncate(&file, pages * page)?;
    fallocate(&file, FallocateFlags::empty(), 0, pages * page)?;
    for hole in (1..pages).step_by(2) {
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, hole * page, page)?;
    }
    Ok(file)
}

/// A pipe that holds half of `pages` pages. The others lay between them, in a pipe that is gone: what a pipe holds are pages of the kernel, which it does not move.
fn every_second_of_pipes(pages: u64, page: usize) -> io::Result<(PipeReader, PipeWriter)> {
    let each = usize::try_from(pages / 2).unwrap_or(usize::MAX).max(1);
    let (mut kept, mut freed) = (io::pipe()?, io::pipe()?);
    for pipe in [&kept, &freed] {
        fcntl_setpipe_size(&pipe.1, each.saturating_mul(page))?;
    }
    let mut bytes = vec![1; page];
    for _ in 0..each {
        kept.1.write_all(&bytes)?;
        freed.1.write_all(&bytes)?;
    }
    for _ in 0..each {
        freed.0.read_exact(&mut bytes)?;
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn half_of_a_file_is_kept() {
        let page = page_size() as u64;
        let file = every_second_of_file(64, page).unwrap();
        let facts = file.metadata().unwrap();
        assert_eq!((facts.len(), facts.blocks() * 512), (64 * page, 32 * page));
    }

    #[test]
    fn one_pipe_is_kept_full() {
        let (reader, writer) = every_second_of_pipes(16, page_size()).unwrap();
        let mut waiting: libc::c_int = 0;
        // SAFETY: FIONREAD writes one `int`.
        let status = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&reader), libc::FIONREAD, &raw mut waiting) };
        assert_eq!((status, waiting as usize), (0, 8 * page_size()));
        drop(writer);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives free memory to the lists of the CPU, so that the kernel's page allocator does the same
//! work in each run.
//!
//! The page allocator keeps free memory in blocks of 1, 2, 4, … pages, and some single pages in
//! lists of each CPU (`struct per_cpu_pages`). A page from such a list costs the same each time. If
//! a list is empty, the kernel splits blocks and moves a batch of pages to the list. If the lists
//! are full, it moves pages back and merges them with free buddies (`rmqueue_bulk`,
//! `free_pcppages_bulk`, mm/page_alloc.c).
//!
//! How often that happens in a phase depends on what all earlier runs have left. Counted by
//! function, this was nearly all of the difference between whole writes of equal runs. Therefore
//! the lists can hold an eighth of the memory, and get more pages before a phase if they hold few,
//! so that no pages are moved during the phase.

use std::{
    ffi::CStr,
    fs::File,
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    param::page_size,
    pipe::fcntl_setpipe_size,
};

use crate::{
    error::{Error, Result},
    proc::{
        meminfo,
        zoneinfo::{self, PageLists},
    },
    system,
};

/// For every this many pages that the lists can hold, one page of the kernel itself is given, and
/// one page of a file that has its own node.
const OF_OTHER_KINDS: u64 = 16;

/// Distance between two pages of that file, in pages: as many as a node holds (`XA_CHUNK_SIZE`,
/// include/linux/xarray.h).
const APART: u64 = 64;

/// The most pages of the lists that are filled: 1 GiB of pages of 4 KiB, as in guests of 8 GiB.
const MOST: u64 = 1 << 18;

/// Name of the file in memory, as `/proc/PID/fd` shows it.
const NAME: &CStr = c"bpfassay-pages";

/// Gives pages of files (`MIGRATE_MOVABLE`) to the lists before a run, if the lists hold less than
/// half of their capacity: allocates pages and frees them at once. Does nothing unless twice as
/// much memory is free, because used memory must not be evicted for it.
///
/// # Errors
/// The kernel does not show how many pages are free, or refuses some.
pub(crate) fn fill_with_pages_of_files() -> Result<()> {
    let Some(pages) = missing(lists()?) else { return Ok(()) };
    let text = system::read(meminfo::PATH)?;
    let free = meminfo::kib(&text, "MemFree");
    let free = free.ok_or_else(|| Error::unexpected(meminfo::PATH, "a line `MemFree: N kB`", &text))?;
    if free / 2 < pages.saturating_mul(page_size() as u64 / 1024) {
        return Ok(());
    }
    file(page_size(), pages, 1).map(drop).map_err(Error::system("take pages of a file in memory"))
}

/// Gives to the lists, right before a phase, pages of the kernel itself and nodes that hold pages
/// of files (`MIGRATE_UNMOVABLE`, `MIGRATE_RECLAIMABLE`). When the kernel moves pages back, it
/// moves as many of each kind, and these kinds have the fewest pages.
///
/// # Errors
/// The errors of [`fill_with_pages_of_files`].
pub(crate) fn fill_with_other_pages() -> Result<()> {
    let pages = lists()?.high / OF_OTHER_KINDS;
    pipe(page_size(), pages).map(drop).map_err(Error::system("take pages of a pipe"))?;
    file(page_size(), pages, APART).map(drop).map_err(Error::system("take nodes of a file in memory"))
}

fn lists() -> Result<PageLists> {
    let text = system::read(zoneinfo::PATH)?;
    let lists = zoneinfo::page_lists(&text)
        .ok_or_else(|| Error::unexpected(zoneinfo::PATH, "`count: N` and `high: N` of each CPU", &text))?;
    Ok(PageLists { high: lists.high.min(MOST), ..lists })
}

/// Returns how many pages of a file to allocate and free, if any.
const fn missing(lists: PageLists) -> Option<u64> {
    if lists.count < lists.high / 2 { Some(lists.high / 8 * 5) } else { None }
}

/// Creates a file in memory with this many `pages`, whose distance is `apart` pages.
fn file(page: usize, pages: u64, apart: u64) -> io::Result<File> {
    let file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC)?);
    for number in 0..pages {
        file.write_all_at(&[1], number * apart * page as u64)?;
    }
    Ok(file)
}

/// Creates a pipe that holds this many `pages`. Pages of a pipe are pages of the kernel, which it
/// does not move.
fn pipe(page: usize, pages: u64) -> io::Result<(io::PipeReader, io::PipeWriter)> {
    let (reader, mut writer) = io::pipe()?;
    fcntl_setpipe_size(&writer, usize::try_from(pages).unwrap_or(usize::MAX).saturating_mul(page))?;
    let bytes = vec![1; page];
    for _ in 0..pages {
        writer.write_all(&bytes)?;
    }
    Ok((reader, writer))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn lists_are_filled_where_they_hold_less_than_half() {
        assert_eq!(missing(PageLists { count: 3_999, high: 8_000 }), Some(5_000));
        assert_eq!(missing(PageLists { count: 4_000, high: 8_000 }), None);
        assert_eq!(missing(PageLists { count: 0, high: 0 }), None);
    }

    #[test]
    fn the_file_has_as_many_pages() {
        let page = page_size() as u64;
        let facts = file(page_size(), 16, 64).unwrap().metadata().unwrap();
        assert_eq!((facts.len(), facts.blocks() * 512), (15 * 64 * page + 1, 16 * page));
    }

    #[test]
    fn the_pipe_is_full() {
        let (reader, writer) = pipe(page_size(), 8).unwrap();
        let mut waiting: libc::c_int = 0;
        // SAFETY: FIONREAD writes one `int`.
        let status = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&reader), libc::FIONREAD, &raw mut waiting) };
        assert_eq!((status, waiting as usize), (0, 8 * page_size()));
        drop(writer);
    }
}

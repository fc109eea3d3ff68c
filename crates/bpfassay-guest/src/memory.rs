// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of free memory when a phase begins.
//!
//! How many instructions the page allocator needs for a page depends on which pages are free, and in which order its lists hold them: on all that
//! ran before. A flush of 64 MiB over loopback NFS differs by 0.3 to 0.6 % for that reason alone. Pages that are taken, and given back in the order of
//! their physical addresses, leave the same lists each time, whatever they were before.

use std::{cmp::Reverse, ffi::c_void, fs::File, io, ops::Range, os::unix::fs::FileExt, ptr};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::{
    error::{Error, Result},
    system,
};

/// Bytes that are taken as single pages: more than what is free in pieces smaller than a huge page.
const PIECES: usize = 64 << 20;

/// Bytes that are taken as huge pages: more than what a phase takes.
const BLOCKS: usize = 384 << 20;

/// Bytes that stay free: far above what makes the kernel reclaim memory, and with it the cached data of the workload.
const RESERVE: usize = 128 << 20;

/// Bytes of a huge page on the three architectures with pages of 4 KiB; where the kernel has none, it gives single pages in their place.
const HUGE_PAGE: usize = 2 << 20;

/// The bits of an entry of /proc/PID/pagemap that are the number of the page frame (Documentation/admin-guide/mm/pagemap.rst).
const FRAME: u64 = (1 << 55) - 1;

/// Bytes of an entry.
const ENTRY: usize = 8;

/// Brings free memory into order, as far as there is enough of it.
///
/// # Errors
/// Where /proc cannot be read, or the kernel refuses the memory.
pub(crate) fn order() -> Result<()> {
    let free = free_bytes(&system::read("/proc/meminfo")?)?;
    let Some(blocks) = blocks_of(free) else { return Ok(()) };
    take_and_give_back(PIECES, blocks)
}

/// Bytes to take as huge pages where `free` bytes are free; `None` where that leaves none.
fn blocks_of(free: usize) -> Option<usize> {
    let most = free.checked_sub(PIECES + RESERVE)?;
    // Not by the page: what is free differs a little from phase to phase, and what is taken shall not.
    let blocks = (most / PIECES * PIECES).min(BLOCKS);
    (blocks > 0).then_some(blocks)
}

/// Bytes that `meminfo`, /proc/meminfo, reports as free.
fn free_bytes(meminfo: &str) -> Result<usize> {
    let kib = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemFree:")?.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kib.and_then(|kib| kib.checked_mul(1024))
        .ok_or_else(|| Error::unexpected("/proc/meminfo", "a line `MemFree: N kB`", meminfo))
}

/// Takes `pieces` bytes as single pages and `blocks` as huge ones, and gives all back, the highest physical address first: a list of the allocator
/// gives out first what came last.
fn take_and_give_back(pieces: usize, blocks: usize) -> Result<()> {
    let failed = || Error::system("bring free memory into order");
    let page = rustix::param::page_size();
    let pieces = Region::map(pieces, page, Advice::LinuxNoHugepage).map_err(failed())?;
    let blocks = Region::map(blocks, HUGE_PAGE, Advice::LinuxHugepage).map_err(failed())?;
    let pagemap = File::open("/proc/self/pagemap").map_err(Error::file("open", "/proc/self/pagemap"))?;
    let mut parts = Vec::with_capacity(pieces.parts().len() + blocks.parts().len());
    for region in [&pieces, &blocks] {
        region.fault_in(page);
        for part in region.parts() {
            parts.push((frame(&pagemap, part.start / page).map_err(failed())?, region, part));
        }
    }
    parts.sort_unstable_by_key(|(frame, ..)| Reverse(*frame));
    for (_, region, part) in parts {
        region.give_back(part).map_err(failed())?;
    }
    Ok(())
}

/// The page frame of the page with this number, counted from address 0.
fn frame(pagemap: &File, page: usize) -> io::Result<u64> {
    let mut entry = [0; ENTRY];
    pagemap.read_exact_at(&mut entry, (page * ENTRY) as u64)?;
    Ok(u64::from_ne_bytes(entry) & FRAME)
}

/// Anonymous memory that nobody refers to.
struct Region {
    mapping: *mut c_void,
    mapped: usize,
    /// The aligned addresses of it that are used.
    used: Range<usize>,
    /// Bytes of a part.
    part: usize,
}

impl Region {
    /// Maps `length` bytes in parts of `part` bytes, aligned to their size.
    fn map(length: usize, part: usize, advice: Advice) -> io::Result<Self> {
        let mapped = length + part;
        // SAFETY: the kernel chooses an address at which nothing is mapped.
        let mapping = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let first = (mapping as usize).next_multiple_of(part);
        let region = Self { mapping, mapped, used: first..first + length, part };
        // SAFETY: the mapping is this region's alone. A kernel without huge pages refuses the advice, which changes nothing then.
        let _ = unsafe { madvise(mapping, mapped, advice) };
        Ok(region)
    }

    fn parts(&self) -> impl ExactSizeIterator<Item = Range<usize>> + use<> {
        let Self { used, part, .. } = self;
        let part = *part;
        used.clone().step_by(part).map(move |start| start..start + part)
    }

    fn fault_in(&self, page: usize) {
        for address in self.used.clone().step_by(page) {
            // SAFETY: within the mapping, to which there is no reference.
            unsafe { ptr::write_volatile(address as *mut u8, 1) };
        }
    }

    /// Gives the pages of a part back to the kernel.
    fn give_back(&self, part: Range<usize>) -> io::Result<()> {
        // SAFETY: within the mapping, to which there is no reference.
        Ok(unsafe { madvise(part.start as *mut c_void, part.len(), Advice::LinuxDontNeed) }?)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping of this region, to which there is no reference. Nothing can be done about a failure, after which it stays mapped.
        let _ = unsafe { munmap(self.mapping, self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_leaves_a_reserve_and_hardly_depends_on_what_is_free() {
        assert_eq!(blocks_of(0), None);
        assert_eq!(blocks_of(RESERVE + PIECES), None);
        assert_eq!(blocks_of(RESERVE + 2 * PIECES), Some(PIECES));
        assert_eq!(blocks_of(RESERVE + 3 * PIECES - 1), Some(PIECES));
        assert_eq!(blocks_of(usize::MAX), Some(BLOCKS));
    }

    #[test]
    fn free_memory_is_read_in_bytes() {
        assert_eq!(free_bytes("MemTotal:  8 kB\nMemFree:           123 kB\nMemAvailable: 9 kB").unwrap(), 123 << 10);
        for wrong in ["", "MemFree: 12", "MemFree: x kB", "MemFree: 99999999999999999999 kB"] {
            assert!(free_bytes(wrong).unwrap_err().to_string().contains("/proc/meminfo"), "{wrong}");
        }
    }

    #[test]
    fn everything_that_was_taken_is_given_back() {
        let mapped = || {
            std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse::<usize>().unwrap()
        };
        take_and_give_back(1 << 20, 2 * HUGE_PAGE).unwrap();
        let before = mapped();
        for _ in 0..8 {
            take_and_give_back(1 << 20, 2 * HUGE_PAGE).unwrap();
        }
        // Other tests map memory meanwhile, but not eight times as much.
        assert!(mapped() < before + (8 * (1 << 20) + 16 * HUGE_PAGE) / 4096 / 2);
    }
}

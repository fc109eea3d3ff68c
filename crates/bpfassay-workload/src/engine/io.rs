// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system calls of a test. They are behind a trait so that they can be recorded
//! ([`super::write_record`]) or replaced in tests.
//!
//! They go through the functions of the C library, as in the real IOR: these decide which system
//! call is made on which architecture.

use std::{ffi::CStr, io, ptr, slice, time::Duration};

use libc::c_int;

/// An open test file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestFile(pub(crate) c_int);

/// A mapped test file.
#[derive(Debug)]
pub(crate) struct MappedFile {
    address: *mut libc::c_void,
    length: usize,
}

/// A lock on a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    Read,
    Write,
    Unlock,
}

/// Advice about a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    Random,
    Sequential,
    DontNeed,
}

/// Capacity of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) block_size: u64,
    pub(crate) blocks: u64,
    pub(crate) free_blocks: u64,
    pub(crate) files: u64,
    pub(crate) free_files: u64,
}

/// The operations of a rank on test files. Every method makes one call.
pub(crate) trait Io {
    /// Returns the time of a monotonic clock.
    fn now(&self) -> Duration;
    fn open(&mut self, path: &CStr, flags: c_int, mode: libc::mode_t) -> io::Result<TestFile>;
    fn seek(&mut self, file: TestFile, offset: i64) -> io::Result<()>;
    fn read(&mut self, file: TestFile, buffer: &mut [u8]) -> io::Result<usize>;
    fn write(&mut self, file: TestFile, buffer: &[u8]) -> io::Result<usize>;
    fn fsync(&mut self, file: TestFile) -> io::Result<()>;
    fn truncate(&mut self, file: TestFile, length: i64) -> io::Result<()>;
    fn lock(&mut self, file: TestFile, lock: Lock, start: i64, length: i64) -> io::Result<()>;
    fn close(&mut self, file: TestFile) -> io::Result<()>;
    fn map(&mut self, file: TestFile, length: usize, writable: bool) -> io::Result<MappedFile>;
    fn sync_map(&mut self, map: &MappedFile, offset: usize, length: usize) -> io::Result<()>;
    fn advise(&mut self, map: &MappedFile, offset: usize, length: usize, advice: Advice) -> io::Result<()>;
    fn unmap(&mut self, map: MappedFile) -> io::Result<()>;
    fn unlink(&mut self, path: &CStr) -> io::Result<()>;
    fn access(&mut self, path: &CStr, mode: c_int) -> io::Result<()>;
    /// Returns the size of the file, in bytes.
    fn size(&mut self, path: &CStr) -> io::Result<u64>;
    fn mkdir(&mut self, path: &CStr, mode: libc::mode_t) -> io::Result<()>;
    fn space(&mut self, directory: &CStr) -> io::Result<Space>;
}

/// Makes the calls to the kernel.
#[derive(Debug, Default)]
pub(crate) struct KernelCalls;

fn done(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn length(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

impl Io for KernelCalls {
    fn now(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
    }

    fn open(&mut self, path: &CStr, flags: c_int, mode: libc::mode_t) -> io::Result<TestFile> {
        // SAFETY: the path ends with a zero byte.
        let file = unsafe { libc::open64(path.as_ptr(), flags, mode) };
        if file < 0 { Err(io::Error::last_os_error()) } else { Ok(TestFile(file)) }
    }

    fn seek(&mut self, file: TestFile, offset: i64) -> io::Result<()> {
        // SAFETY: takes numbers only.
        if unsafe { libc::lseek64(file.0, offset, libc::SEEK_SET) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn read(&mut self, file: TestFile, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the buffer is writable for its length.
        length(unsafe { libc::read(file.0, buffer.as_mut_ptr().cast(), buffer.len()) })
    }

    fn write(&mut self, file: TestFile, buffer: &[u8]) -> io::Result<usize> {
        // SAFETY: the buffer is readable for its length.
        length(unsafe { libc::write(file.0, buffer.as_ptr().cast(), buffer.len()) })
    }

    fn fsync(&mut self, file: TestFile) -> io::Result<()> {
        // SAFETY: takes a number only.
        done(unsafe { libc::fsync(file.0) })
    }

    fn truncate(&mut self, file: TestFile, length: i64) -> io::Result<()> {
        // SAFETY: takes numbers only.
        done(unsafe { libc::ftruncate64(file.0, length) })
    }

    fn lock(&mut self, file: TestFile, lock: Lock, start: i64, length: i64) -> io::Result<()> {
        let (kind, command) = match lock {
            Lock::Read => (libc::F_RDLCK, libc::F_SETLKW),
            Lock::Write => (libc::F_WRLCK, libc::F_SETLKW),
            Lock::Unlock => (libc::F_UNLCK, libc::F_SETLK),
        };
        let range = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: start,
            l_len: length,
            l_pid: 0,
        };
        // SAFETY: the pointer is to a live structure of the type that these commands take.
        done(unsafe { libc::fcntl(file.0, command, &raw const range) })
    }

    fn close(&mut self, file: TestFile) -> io::Result<()> {
        // SAFETY: the engine closes each of its files once and never uses it afterwards.
        done(unsafe { libc::close(file.0) })
    }

    fn map(&mut self, file: TestFile, length: usize, writable: bool) -> io::Result<MappedFile> {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: the kernel chooses an address that nothing else uses.
        let address = unsafe { libc::mmap64(ptr::null_mut(), length, protection, libc::MAP_SHARED, file.0, 0) };
        if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(MappedFile { address, length }) }
    }

    fn sync_map(&mut self, map: &MappedFile, offset: usize, length: usize) -> io::Result<()> {
        // SAFETY: `part` stays within the mapping.
        done(unsafe { libc::msync(map.part(offset, length)?, length, libc::MS_SYNC) })
    }

    fn advise(&mut self, map: &MappedFile, offset: usize, length: usize, advice: Advice) -> io::Result<()> {
        let advice = match advice {
            Advice::Random => libc::POSIX_MADV_RANDOM,
            Advice::Sequential => libc::POSIX_MADV_SEQUENTIAL,
            Advice::DontNeed => libc::POSIX_MADV_DONTNEED,
        };
        // SAFETY: `part` stays within the mapping, and none of these pieces of advice changes its
        // contents.
        match unsafe { libc::posix_madvise(map.part(offset, length)?, length, advice) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    fn unmap(&mut self, map: MappedFile) -> io::Result<()> {
        // SAFETY: the mapping is consumed; copies into and out of it borrow it.
        done(unsafe { libc::munmap(map.address, map.length) })
    }

    fn unlink(&mut self, path: &CStr) -> io::Result<()> {
        // SAFETY: the path ends with a zero byte.
        done(unsafe { libc::unlink(path.as_ptr()) })
    }

    fn access(&mut self, path: &CStr, mode: c_int) -> io::Result<()> {
        // SAFETY: the path ends with a zero byte.
        done(unsafe { libc::access(path.as_ptr(), mode) })
    }

    fn size(&mut self, path: &CStr) -> io::Result<u64> {
        let mut status = std::mem::MaybeUninit::<libc::stat64>::uninit();
        // SAFETY: the path ends with a zero byte and the structure is writable.
        done(unsafe { libc::stat64(path.as_ptr(), status.as_mut_ptr()) })?;
        // SAFETY: the call succeeded and has filled the structure.
        let status = unsafe { status.assume_init() };
        u64::try_from(status.st_size).map_err(io::Error::other)
    }

    fn mkdir(&mut self, path: &CStr, mode: libc::mode_t) -> io::Result<()> {
        // SAFETY: the path ends with a zero byte.
        done(unsafe { libc::mkdir(path.as_ptr(), mode) })
    }

    fn space(&mut self, directory: &CStr) -> io::Result<Space> {
        let mut space = std::mem::MaybeUninit::<libc::statvfs64>::uninit();
        // SAFETY: the path ends with a zero byte and the structure is writable.
        done(unsafe { libc::statvfs64(directory.as_ptr(), space.as_mut_ptr()) })?;
        // SAFETY: the call succeeded and has filled the structure.
        let space = unsafe { space.assume_init() };
        Ok(Space {
            block_size: space.f_bsize,
            blocks: space.f_blocks,
            free_blocks: space.f_bfree,
            files: space.f_files,
            free_files: space.f_ffree,
        })
    }
}

impl MappedFile {
    /// Returns the address of a range within the mapping.
    fn part(&self, offset: usize, length: usize) -> io::Result<*mut libc::c_void> {
        match offset.checked_add(length) {
            // SAFETY: the offset lies within the mapping.
            Some(end) if end <= self.length => Ok(unsafe { self.address.byte_add(offset) }),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "a transfer goes beyond the end of the mapping")),
        }
    }

    pub(crate) const fn length(&self) -> usize {
        self.length
    }

    /// Copies `buffer` into the file at `offset`. The mapping must be writable.
    pub(crate) fn store(&mut self, offset: usize, buffer: &[u8]) -> io::Result<()> {
        let target = self.part(offset, buffer.len())?;
        // SAFETY: the range lies within the mapping and outside of every Rust object.
        unsafe { ptr::copy_nonoverlapping(buffer.as_ptr(), target.cast(), buffer.len()) };
        Ok(())
    }

    /// Copies from the file at `offset` into `buffer`.
    pub(crate) fn load(&self, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        let source = self.part(offset, buffer.len())?;
        // SAFETY: the range lies within the mapping and outside of every Rust object.
        unsafe { ptr::copy_nonoverlapping(source.cast(), buffer.as_mut_ptr(), buffer.len()) };
        Ok(())
    }
}

/// A page-aligned buffer, as `O_DIRECT` requires.
pub(crate) struct AlignedBuffer {
    address: ptr::NonNull<u8>,
    layout: std::alloc::Layout,
}

impl AlignedBuffer {
    /// Creates a buffer of `size` zero bytes; `None` if there is not enough memory.
    pub(crate) fn new(size: usize) -> Option<Self> {
        let layout = std::alloc::Layout::from_size_align(size.max(1), rustix::param::page_size()).ok()?;
        // SAFETY: the size is not zero.
        let address = ptr::NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        Some(Self { address, layout })
    }

    pub(crate) const fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: allocated with this size, initialised, and borrowed mutably from the owner.
        unsafe { slice::from_raw_parts_mut(self.address.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layout.
        unsafe { std::alloc::dealloc(self.address.as_ptr(), self.layout) };
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records the calls on test files, one line each, for comparison with a real IOR's system calls.
//!
//! A line names the call and what determines its effect: `open PATH rw,create 664`, `seek 4096`,
//! `write 4096`, `msync 0 65536`. If a call failed or moved fewer bytes, the line ends with ` = `
//! and the result.

use std::{
    ffi::CStr,
    fmt::{Arguments, Write as _},
    fs, io,
    path::Path,
    time::Duration,
};

use libc::c_int;

use super::io::{Advice, Io, Lock, MappedFile, Space, TestFile};

/// Forwards every call and records it.
#[derive(Debug)]
pub(crate) struct Recorder<I> {
    inner: I,
    lines: String,
}

impl<I> Recorder<I> {
    pub(crate) const fn new(inner: I) -> Self {
        Self { inner, lines: String::new() }
    }

    /// Writes the record to `directory/rank.N`.
    pub(crate) fn save(&self, directory: &Path, rank: u32) -> io::Result<()> {
        fs::write(directory.join(format!("rank.{rank}")), &self.lines)
    }

    fn note<T>(&mut self, call: Arguments<'_>, result: io::Result<T>) -> io::Result<T> {
        let end = match &result {
            Ok(_) => String::new(),
            Err(error) => format!(" = {}", error.raw_os_error().map_or(-1, |number| -number)),
        };
        // Writing to a string does not fail.
        let _ = writeln!(self.lines, "{call}{end}");
        result
    }

    fn moved(&mut self, call: &str, asked: usize, result: io::Result<usize>) -> io::Result<usize> {
        match result {
            Ok(moved) if moved == asked => self.note(format_args!("{call} {asked}"), Ok(moved)),
            Ok(moved) => self.note(format_args!("{call} {asked} = {moved}"), Ok(moved)),
            Err(error) => self.note(format_args!("{call} {asked}"), Err(error)),
        }
    }
}

fn shown(path: &CStr) -> String {
    String::from_utf8_lossy(path.to_bytes()).into_owned()
}

impl<I: Io> Io for Recorder<I> {
    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn open(&mut self, path: &CStr, flags: c_int, mode: libc::mode_t) -> io::Result<TestFile> {
        let result = self.inner.open(path, flags, mode);
        let mut opened = vec![if flags & libc::O_ACCMODE == libc::O_RDWR { "rw" } else { "r" }];
        opened.extend((flags & libc::O_CREAT != 0).then_some("create"));
        opened.extend((flags & libc::O_DIRECT != 0).then_some("direct"));
        let mode = if flags & libc::O_CREAT == 0 { String::new() } else { format!(" {mode:o}") };
        self.note(format_args!("open {} {}{mode}", shown(path), opened.join(",")), result)
    }

    fn seek(&mut self, file: TestFile, offset: i64) -> io::Result<()> {
        let result = self.inner.seek(file, offset);
        self.note(format_args!("seek {offset}"), result)
    }

    fn read(&mut self, file: TestFile, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.inner.read(file, buffer);
        self.moved("read", buffer.len(), result)
    }

    fn write(&mut self, file: TestFile, buffer: &[u8]) -> io::Result<usize> {
        let result = self.inner.write(file, buffer);
        self.moved("write", buffer.len(), result)
    }

    fn fsync(&mut self, file: TestFile) -> io::Result<()> {
        let result = self.inner.fsync(file);
        self.note(format_args!("fsync"), result)
    }

    fn truncate(&mut self, file: TestFile, length: i64) -> io::Result<()> {
        let result = self.inner.truncate(file, length);
        self.note(format_args!("truncate {length}"), result)
    }

    fn lock(&mut self, file: TestFile, lock: Lock, start: i64, length: i64) -> io::Result<()> {
        let result = self.inner.lock(file, lock, start, length);
        let kind = match lock {
            Lock::Read => "read",
            Lock::Write => "write",
            Lock::Unlock => "unlock",
        };
        self.note(format_args!("lock {kind} {start} {length}"), result)
    }

    fn close(&mut self, file: TestFile) -> io::Result<()> {
        let result = self.inner.close(file);
        self.note(format_args!("close"), result)
    }

    fn map(&mut self, file: TestFile, length: usize, writable: bool) -> io::Result<MappedFile> {
        let result = self.inner.map(file, length, writable);
        self.note(format_args!("map {length} {}", if writable { "rw" } else { "r" }), result)
    }

    fn sync_map(&mut self, map: &MappedFile, offset: usize, length: usize) -> io::Result<()> {
        let result = self.inner.sync_map(map, offset, length);
        self.note(format_args!("msync {offset} {length}"), result)
    }

    fn advise(&mut self, map: &MappedFile, offset: usize, length: usize, advice: Advice) -> io::Result<()> {
        let result = self.inner.advise(map, offset, length, advice);
        let name = match advice {
            Advice::Random => "random",
            Advice::Sequential => "sequential",
            // The C library accepts this advice without making a system call.
            Advice::DontNeed => return result,
        };
        self.note(format_args!("madvise {offset} {length} {name}"), result)
    }

    fn unmap(&mut self, map: MappedFile) -> io::Result<()> {
        let length = map.length();
        let result = self.inner.unmap(map);
        self.note(format_args!("unmap {length}"), result)
    }

    fn unlink(&mut self, path: &CStr) -> io::Result<()> {
        let result = self.inner.unlink(path);
        self.note(format_args!("unlink {}", shown(path)), result)
    }

    fn access(&mut self, path: &CStr, mode: c_int) -> io::Result<()> {
        let result = self.inner.access(path, mode);
        self.note(format_args!("access {} {mode}", shown(path)), result)
    }

    fn size(&mut self, path: &CStr) -> io::Result<u64> {
        let result = self.inner.size(path);
        self.note(format_args!("stat {}", shown(path)), result)
    }

    fn mkdir(&mut self, path: &CStr, mode: libc::mode_t) -> io::Result<()> {
        let result = self.inner.mkdir(path, mode);
        self.note(format_args!("mkdir {} {mode:o}", shown(path)), result)
    }

    fn space(&mut self, directory: &CStr) -> io::Result<Space> {
        let result = self.inner.space(directory);
        self.note(format_args!("statfs {}", shown(directory)), result)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! IOR's interfaces: how a test file is created, opened, transferred to and from, and closed.

use std::{ffi::CStr, io};

use super::{
    EngineError,
    control_channel::RankResults,
    io::{Advice, Io, Lock, MappedFile, TestFile},
};
use bpfassay_ior::{AccessOrder, Api, Options};

/// How often IOR continues after a partial transfer.
const MAX_RETRIES: u32 = 10_000;

/// Permissions of a new file.
const MODE: libc::mode_t = 0o664;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransferDirection {
    Read,
    Write,
}

/// One rank's use of an interface, in one test.
pub(crate) struct Backend<'a, I> {
    pub(crate) io: I,
    pub(crate) options: &'a Options,
    pub(crate) rank: u32,
    /// Size of all tasks' blocks together, in bytes, which the MMAP interface maps.
    pub(crate) aggregate: u64,
    /// Results of the current phase's calls.
    pub(crate) moved: RankResults,
}

/// An open test file.
pub(crate) struct Opened {
    file: TestFile,
    map: Option<MappedFile>,
    path: String,
}

impl<I: Io> Backend<'_, I> {
    fn failed(&self, call: &'static str, path: &str, source: io::Error) -> EngineError {
        EngineError::Call { rank: self.rank, call, path: path.to_owned(), source }
    }

    /// Opens the file for writing, and creates it if necessary.
    pub(crate) fn create(&mut self, path: &CStr) -> Result<Opened, EngineError> {
        let opened = self.open_with(path, libc::O_CREAT | libc::O_RDWR, MODE)?;
        if self.options.api != Api::Mmap {
            return Ok(opened);
        }
        self.io
            .truncate(opened.file, self.aggregate as i64)
            .map_err(|source| self.failed("ftruncate", &opened.path, source))?;
        self.map(opened, true)
    }

    /// Opens the file for reading.
    pub(crate) fn open(&mut self, path: &CStr) -> Result<Opened, EngineError> {
        let opened = self.open_with(path, libc::O_RDONLY, 0)?;
        if self.options.api == Api::Mmap { self.map(opened, false) } else { Ok(opened) }
    }

    fn open_with(&mut self, path: &CStr, flags: i32, mode: libc::mode_t) -> Result<Opened, EngineError> {
        let is_direct = self.options.api == Api::Posix && self.options.posix.direct;
        let flags = if is_direct { flags | libc::O_DIRECT } else { flags };
        let name = path.to_string_lossy().into_owned();
        let file = self.io.open(path, flags, mode).map_err(|source| self.failed("open", &name, source))?;
        Ok(Opened { file, map: None, path: name })
    }

    fn map(&mut self, opened: Opened, writable: bool) -> Result<Opened, EngineError> {
        let length = usize::try_from(self.aggregate)
            .map_err(|_| self.failed("mmap", &opened.path, io::ErrorKind::FileTooLarge.into()))?;
        let map =
            self.io.map(opened.file, length, writable).map_err(|source| self.failed("mmap", &opened.path, source))?;
        let order = match self.options.order {
            AccessOrder::Sequential => Advice::Sequential,
            AccessOrder::Shuffled | AccessOrder::Random => Advice::Random,
        };
        for advice in
            [self.options.mmap.pattern.then_some(order), self.options.mmap.dont_need.then_some(Advice::DontNeed)]
                .into_iter()
                .flatten()
        {
            self.io.advise(&map, 0, length, advice).map_err(|source| self.failed("madvise", &opened.path, source))?;
        }
        Ok(Opened { map: Some(map), ..opened })
    }

    /// Moves the whole buffer.
    pub(crate) fn transfer(
        &mut self,
        opened: &mut Opened,
        direction: TransferDirection,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(), EngineError> {
        if opened.map.is_some() {
            return self.copy(opened, direction, buffer, offset);
        }
        let (file, length) = (opened.file, buffer.len());
        self.io.seek(file, offset as i64).map_err(|source| self.failed("lseek", &opened.path, source))?;
        let lock = match direction {
            TransferDirection::Read => Lock::Read,
            TransferDirection::Write => Lock::Write,
        };
        if self.options.posix.range_locks {
            self.io
                .lock(file, lock, offset as i64, length as i64)
                .map_err(|source| self.failed("fcntl", &opened.path, source))?;
        }
        let (mut moved, mut retries) = (0, 0);
        while moved < length {
            let rest = &mut buffer[moved..];
            let (call, result) = match direction {
                TransferDirection::Write => {
                    let result = self.io.write(file, rest);
                    RankResults::count(&mut self.moved.write, &result);
                    if self.options.fsync_per_write {
                        self.fsync(opened)?;
                    }
                    ("write", result)
                }
                TransferDirection::Read => {
                    let result = self.io.read(file, rest);
                    RankResults::count(&mut self.moved.read, &result);
                    ("read", result)
                }
            };
            let step = result.map_err(|source| self.failed(call, &opened.path, source))?;
            let is_partial = step < length - moved;
            let is_end = direction == TransferDirection::Read && step == 0;
            if is_end || (is_partial && (retries > MAX_RETRIES || self.options.single_attempt)) {
                return Err(EngineError::Partial {
                    rank: self.rank,
                    call,
                    path: opened.path.clone(),
                    offset,
                    moved: (moved + step) as u64,
                    length: length as u64,
                });
            }
            moved += step;
            retries += 1;
        }
        if self.options.posix.range_locks {
            self.io
                .lock(file, Lock::Unlock, offset as i64, length as i64)
                .map_err(|source| self.failed("fcntl", &opened.path, source))?;
        }
        Ok(())
    }

    fn copy(
        &mut self,
        opened: &mut Opened,
        direction: TransferDirection,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(), EngineError> {
        let Opened { map: Some(map), path, .. } = opened else { return Ok(()) };
        let at = offset as usize;
        match direction {
            TransferDirection::Write => map.store(at, buffer),
            TransferDirection::Read => map.load(at, buffer),
        }
        .map_err(|source| self.failed("copy", path, source))?;
        if self.options.fsync_per_write {
            self.io.sync_map(map, at, buffer.len()).map_err(|source| self.failed("msync", path, source))?;
            self.io
                .advise(map, at, buffer.len(), Advice::DontNeed)
                .map_err(|source| self.failed("madvise", path, source))?;
        }
        Ok(())
    }

    /// Brings everything written to stable storage.
    pub(crate) fn fsync(&mut self, opened: &Opened) -> Result<(), EngineError> {
        match &opened.map {
            Some(map) => {
                self.io.sync_map(map, 0, map.length()).map_err(|source| self.failed("msync", &opened.path, source))
            }
            None => self.io.fsync(opened.file).map_err(|source| self.failed("fsync", &opened.path, source)),
        }
    }

    pub(crate) fn close(&mut self, opened: Opened) -> Result<(), EngineError> {
        let Opened { file, map, path } = opened;
        if let Some(map) = map {
            self.io.unmap(map).map_err(|source| self.failed("munmap", &path, source))?;
        }
        self.io.close(file).map_err(|source| self.failed("close", &path, source))
    }

    /// Returns the size of a test file, in bytes.
    pub(crate) fn size(&mut self, path: &CStr) -> Result<u64, EngineError> {
        self.io.size(path).map_err(|source| self.failed("stat", &path.to_string_lossy(), source))
    }

    pub(crate) fn exists(&mut self, path: &CStr) -> bool {
        self.io.access(path, libc::F_OK).is_ok()
    }

    pub(crate) fn remove(&mut self, path: &CStr) -> Result<(), EngineError> {
        self.io.unlink(path).map_err(|source| self.failed("unlink", &path.to_string_lossy(), source))
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The surroundings of every path: files with known data, counts of its calls, and the barriers
//! around a phase.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use bpfassay_protocol::{
    IoPath, Operation,
    control::{PhaseEvent, PhaseName},
    operation::Totals,
};

use super::{
    PathsError,
    buffer::{Buffer, fill, first_difference},
};
use crate::engine::control_channel::Control;

/// Bytes per call.
pub(crate) const CHUNK: usize = 16 << 10;

/// Why a path did not end normally.
#[derive(Debug)]
pub(crate) enum PathFailure {
    /// The kernel or the file system does not support the path.
    Refused { call: &'static str, source: io::Error },
    /// Any other error.
    Failed(PathsError),
}

impl From<PathsError> for PathFailure {
    fn from(error: PathsError) -> Self {
        Self::Failed(error)
    }
}

/// Makes the error of `call` a refusal.
pub(crate) fn refused(call: &'static str) -> impl FnOnce(io::Error) -> PathFailure {
    move |source| PathFailure::Refused { call, source }
}

/// Results of the calls of a phase.
#[derive(Debug, Default)]
pub(crate) struct Moved(pub(super) BTreeMap<Operation, Totals>);

impl Moved {
    /// Counts one call.
    pub(crate) fn count(&mut self, operation: Operation, result: &io::Result<usize>) {
        *self.0.entry(operation).or_default() += match result {
            Ok(bytes) => Totals { calls: 1, bytes: *bytes as u64, errors: 0 },
            Err(_) => Totals { calls: 1, bytes: 0, errors: 1 },
        };
    }

    /// Counts the results of several calls.
    pub(crate) fn add(&mut self, operation: Operation, calls: u64, bytes: u64, errors: u64) {
        *self.0.entry(operation).or_default() += Totals { calls, bytes, errors };
    }

    /// Counts bytes that were not moved by a call.
    pub(crate) fn count_bytes(&mut self, operation: Operation, bytes: usize) {
        *self.0.entry(operation).or_default() += Totals { calls: 0, bytes: bytes as u64, errors: 0 };
    }
}

/// The environment in which one path runs.
pub(crate) struct PathStage<'a> {
    pub(crate) path: IoPath,
    pub(crate) size: usize,
    directory: &'a Path,
    control: Option<&'a mut Control>,
    #[cfg(test)]
    pub(crate) phases: Vec<BTreeMap<Operation, Totals>>,
}

impl<'a> PathStage<'a> {
    pub(crate) fn new(path: IoPath, size: usize, directory: &'a Path, control: Option<&'a mut Control>) -> Self {
        Self {
            path,
            size,
            directory,
            control,
            #[cfg(test)]
            phases: Vec::new(),
        }
    }

    /// Returns the seed of this path's data.
    pub(crate) fn seed(&self) -> u64 {
        self.path as u64 + 1
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn failed(&self, action: &'static str, file: &Path) -> impl FnOnce(io::Error) -> PathsError {
        let (path, file) = (self.path, file.to_owned());
        move |source| PathsError::File { path, action, file, source }
    }

    /// Returns the failure of a call with an impossible result.
    pub(crate) fn wrong(&self, call: &'static str, problem: impl Into<String>) -> PathFailure {
        PathsError::Call { path: self.path, call, problem: problem.into() }.into()
    }

    /// Creates a file with this path's data, and opens it for reading with `flags`.
    pub(crate) fn source(&self, flags: i32) -> Result<File, PathFailure> {
        let name = self.file("source");
        let mut data = Buffer::zeroed(self.size);
        fill(&mut data, self.seed(), 0);
        fs::write(&name, &*data).map_err(self.failed("write", &name))?;
        // Some paths (copying on an NFS server) only accept stable data.
        File::open(&name).and_then(|file| file.sync_all()).map_err(self.failed("sync", &name))?;
        self.open("open", &name, OpenOptions::new().read(true), flags)
    }

    /// Creates an empty file, and opens it for reading and writing with `flags`.
    pub(crate) fn target(&self, flags: i32) -> Result<File, PathFailure> {
        let name = self.file("target");
        File::create(&name).map_err(self.failed("create", &name))?;
        self.open("open", &name, OpenOptions::new().read(true).write(true), flags)
    }

    fn open(
        &self,
        call: &'static str,
        name: &Path,
        options: &mut OpenOptions,
        flags: i32,
    ) -> Result<File, PathFailure> {
        let opened = options.custom_flags(flags).open(name);
        if flags == 0 {
            opened.map_err(|error| self.failed("open", name)(error).into())
        } else {
            opened.map_err(refused(call))
        }
    }

    /// Begins the phase, runs `work`, and ends the phase.
    pub(crate) fn phase<T>(
        &mut self,
        work: impl FnOnce(&Self, &mut Moved) -> Result<T, PathFailure>,
    ) -> Result<T, PathFailure> {
        let phase = PhaseName { phase: self.path.name().to_owned(), test: 0, repetition: 0 };
        let mut moved = Moved::default();
        self.announce(&PhaseEvent::Begin(phase.clone()))?;
        let result = work(self, &mut moved);
        if !matches!(result, Err(PathFailure::Failed(_))) {
            #[cfg(test)]
            self.phases.push(moved.0.clone());
            self.announce(&PhaseEvent::End { phase, moved: moved.0, events: BTreeMap::new(), mount: None })?;
        }
        result
    }

    fn announce(&mut self, event: &PhaseEvent) -> Result<(), PathsError> {
        match &mut self.control {
            Some(control) => Ok(control.announce(event)?),
            None => Ok(()),
        }
    }

    /// Moves all bytes in order, one call of `transfer` after the other. The next call continues
    /// after a partial one.
    pub(crate) fn each(
        &self,
        call: &'static str,
        moved: &mut Moved,
        operations: &[Operation],
        mut transfer: impl FnMut(Range<usize>) -> io::Result<usize>,
    ) -> Result<(), PathFailure> {
        let mut at = 0;
        while at < self.size {
            let end = self.size.min(at + CHUNK);
            let result = transfer(at..end);
            for &operation in operations {
                moved.count(operation, &result);
            }
            at += self.step(call, result, end - at)?;
        }
        Ok(())
    }

    /// Moves all bytes by `run`, which accepts up to `depth` ranges at once. The rest of a partial
    /// request is requested again.
    pub(crate) fn batches(
        &self,
        call: &'static str,
        moved: &mut Moved,
        operation: Operation,
        depth: usize,
        mut run: impl FnMut(&[Range<usize>]) -> io::Result<Vec<io::Result<usize>>>,
    ) -> Result<(), PathFailure> {
        let mut pending: Vec<Range<usize>> =
            (0..self.size).step_by(CHUNK).map(|at| at..self.size.min(at + CHUNK)).rev().collect();
        while !pending.is_empty() {
            let ranges = pending.split_off(pending.len().saturating_sub(depth));
            let results = run(&ranges).map_err(refused(call))?;
            for result in &results {
                moved.count(operation, result);
            }
            for (range, result) in ranges.into_iter().zip(results) {
                let length = self.step(call, result, range.len())?;
                if length < range.len() {
                    pending.push(range.start + length..range.end);
                }
            }
        }
        Ok(())
    }

    /// Returns how many of `asked` bytes one call moved.
    fn step(&self, call: &'static str, result: io::Result<usize>, asked: usize) -> Result<usize, PathFailure> {
        match result {
            Err(source) => Err(PathFailure::Refused { call, source }),
            Ok(0) => Err(self.wrong(call, format!("moved none of {asked} bytes"))),
            Ok(moved) if moved > asked => Err(self.wrong(call, format!("moved {moved} of {asked} bytes"))),
            Ok(moved) => Ok(moved),
        }
    }

    /// Checks that `data` equal the contents of this path's source.
    pub(crate) fn check(&self, data: &[u8]) -> Result<(), PathFailure> {
        let size = self.size as u64;
        let at = if data.len() == self.size { first_difference(data, self.seed(), 0) } else { Some(data.len() as u64) };
        at.map_or(Ok(()), |at| Err(PathsError::Data { path: self.path, at, size }.into()))
    }

    /// Checks that the file from [`Self::target`] contains exactly this path's data.
    pub(crate) fn check_target(&self) -> Result<(), PathFailure> {
        let name = self.file("target");
        let data = fs::read(&name).map_err(self.failed("read", &name))?;
        self.check(&data)
    }

    /// Extends the file from [`Self::target`] to its final size.
    pub(crate) fn lengthen(&self, file: &File) -> Result<(), PathFailure> {
        let name = self.file("target");
        Ok(file.set_len(self.size as u64).map_err(self.failed("lengthen", &name))?)
    }

    /// Writes this path's data to `file`.
    pub(crate) fn put(&self, file: &File, name: &Path) -> Result<(), PathFailure> {
        Ok(file.write_all_at(&Buffer::filled(self.size, self.seed()), 0).map_err(self.failed("write", name))?)
    }

    /// Removes the path's files.
    pub(crate) fn clear(&self) -> Result<(), PathsError> {
        let failed = |error| self.failed("remove", self.directory)(error);
        fs::remove_dir_all(self.directory).map_err(failed)
    }
}

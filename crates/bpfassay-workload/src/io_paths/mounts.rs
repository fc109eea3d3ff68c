// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workload `mounts`: writes and reads a file on the file system under test and on each further
//! mount. The amounts differ from mount to mount, so that counts under the wrong mount show.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use bpfassay_protocol::{
    Operation,
    control::{PhaseEvent, PhaseName},
};
use serde::Serialize;

use super::{
    MAX_SIZE,
    buffer::{Buffer, first_difference},
    path_calls,
    stage::{CHUNK, Moved},
};
use crate::engine::{
    EngineError,
    control_channel::{self, Control},
};

/// Name of the file on each mount.
const FILE: &str = "bpfassay-mounts";

/// Name of the phase on the file system under test. Other phases have the paths of their mounts as
/// names.
pub const UNDER_TEST: &str = "file-system";

/// One run of the workload.
#[derive(Debug, Clone)]
pub struct MountsRun {
    /// A directory on the file system under test.
    pub directory: PathBuf,
    /// Bytes to write on the file system under test; a multiple of 4096. Each further mount gets
    /// `size` more bytes than the one before.
    pub size: u64,
    /// Path of the summary (JSON), if one is wanted.
    pub summary: Option<PathBuf>,
    /// Paths of the other mounts.
    pub mounts: Vec<PathBuf>,
}

/// The workload's final report.
#[derive(Debug, Clone, Serialize)]
struct MountsSummary<'a> {
    size: u64,
    mounts: &'a [PathBuf],
}

/// Why the workload stopped.
#[derive(Debug, thiserror::Error)]
pub enum MountsWorkloadError {
    /// This size cannot be moved.
    #[error(
        "cannot move {size} bytes on each mount: give a multiple of 4096 from 4096 to {MAX_SIZE} bytes for the last of them"
    )]
    Size {
        /// The given size, in bytes.
        size: u64,
    },
    /// A call failed.
    #[error("cannot {action} {}", file.display())]
    File {
        /// The attempted operation, as a verb.
        action: &'static str,
        /// Path of the file.
        file: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The data that were read differ from those that were written.
    #[error("wrong data at offset {at} of {}", file.display())]
    Data {
        /// Offset of the first wrong byte.
        at: u64,
        /// Path of the file.
        file: PathBuf,
    },
    /// The control channel does not work as expected.
    #[error(transparent)]
    Control(#[from] EngineError),
}

impl MountsRun {
    /// Writes and reads a file on each mount, in a separate phase for each. The environment names
    /// the control channel.
    ///
    /// # Errors
    /// [`MountsWorkloadError`]: a file cannot be written or read, or has other data.
    pub fn start(&self) -> Result<(), MountsWorkloadError> {
        let control = control_channel::descriptor()?.map(Control::take);
        self.with_control(control)
    }

    fn with_control<S: io::Read + io::Write>(
        &self,
        mut control: Option<Control<S>>,
    ) -> Result<(), MountsWorkloadError> {
        let wrong_size = || MountsWorkloadError::Size { size: self.size };
        if self.size == 0 || !self.size.is_multiple_of(4096) {
            return Err(wrong_size());
        }
        let places = std::iter::once((&self.directory, false)).chain(self.mounts.iter().map(|mount| (mount, true)));
        for ((place, is_mount), times) in places.zip(1..) {
            let size = self.size.checked_mul(times).filter(|&size| size <= MAX_SIZE).ok_or_else(wrong_size)?;
            let mount = is_mount.then(|| place.display().to_string());
            let phase =
                PhaseName { phase: mount.clone().unwrap_or_else(|| UNDER_TEST.to_owned()), test: 0, repetition: 0 };
            let mut announce = |event| control.as_mut().map_or(Ok(()), |control| control.announce(&event));
            let file = place.join(FILE);
            let mut opened = OpenedFile::new(&file, size, times)?;
            announce(PhaseEvent::Begin(phase.clone()))?;
            let moved = opened.transfer()?;
            announce(PhaseEvent::End { phase, moved: moved.0, events: BTreeMap::new(), mount })?;
            opened.check()?;
            fs::remove_file(&file).map_err(failed("remove", &file))?;
        }
        match &self.summary {
            None => Ok(()),
            Some(file) => serde_json::to_vec(&MountsSummary { size: self.size, mounts: &self.mounts })
                .map_err(io::Error::from)
                .and_then(|text| fs::write(file, text))
                .map_err(failed("write", file)),
        }
    }
}

fn failed(action: &'static str, file: &Path) -> impl FnOnce(io::Error) -> MountsWorkloadError {
    let file = file.to_owned();
    move |source| MountsWorkloadError::File { action, file, source }
}

/// An open file, and memory for its data.
struct OpenedFile<'a> {
    name: &'a Path,
    file: fs::File,
    seed: u64,
    written: Buffer,
    read: Buffer,
}

impl<'a> OpenedFile<'a> {
    fn new(name: &'a Path, size: u64, seed: u64) -> Result<Self, MountsWorkloadError> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true);
        let file = options.open(name).map_err(failed("create", name))?;
        // The size is at most `MAX_SIZE`, which fits into memory's address range.
        let length = size as usize;
        Ok(Self { name, file, seed, written: Buffer::filled(length, seed), read: Buffer::zeroed(length) })
    }

    /// Writes the whole file and reads it again.
    fn transfer(&mut self) -> Result<Moved, MountsWorkloadError> {
        let mut moved = Moved::default();
        let length = self.written.len();
        for operation in [Operation::Write, Operation::Read] {
            let mut at = 0;
            while at < length {
                let end = length.min(at + CHUNK);
                let (action, result) = match operation {
                    Operation::Write => {
                        ("write", path_calls::pwrite(&self.file, &self.written[at..end], at as libc::off_t))
                    }
                    _ => ("read", path_calls::pread(&self.file, &mut self.read[at..end], at)),
                };
                moved.count(operation, &result);
                at += match result.map_err(failed(action, self.name))? {
                    0 => return Err(failed(action, self.name)(io::ErrorKind::UnexpectedEof.into())),
                    bytes => bytes,
                };
            }
        }
        Ok(moved)
    }

    fn check(&self) -> Result<(), MountsWorkloadError> {
        match first_difference(&self.read, self.seed, 0) {
            None => Ok(()),
            Some(at) => Err(MountsWorkloadError::Data { at, file: self.name.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn run(directory: &Path, size: u64, mounts: &[PathBuf]) -> MountsRun {
        MountsRun {
            directory: directory.to_owned(),
            size,
            summary: Some(directory.join("summary.json")),
            mounts: mounts.to_vec(),
        }
    }

    #[test]
    fn each_mount_has_a_phase_and_an_amount_of_its_own() {
        let places = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [under_test, a, b] = places.each_ref().map(|place| place.path());
        let (agent, engine) = UnixStream::pair().unwrap();
        let answers = std::thread::spawn(move || {
            use io::{BufRead as _, Write as _};
            let mut events = Vec::new();
            for line in io::BufReader::new(&agent).lines() {
                events.push(serde_json::from_str::<PhaseEvent>(&line.unwrap()).unwrap());
                (&agent).write_all(b"g").unwrap();
            }
            events
        });
        let mounts = [a.to_owned(), b.to_owned()];
        run(under_test, 20480, &mounts).with_control(Some(Control::over(engine))).unwrap();
        let mut seen = Vec::new();
        for event in answers.join().unwrap() {
            let PhaseEvent::End { phase, moved, mount, .. } = event else { continue };
            let totals = moved.values().map(|totals| (totals.calls, totals.bytes, totals.errors)).collect::<Vec<_>>();
            assert_eq!(totals[0], totals[1]);
            seen.push((phase.phase, mount, totals[0]));
        }
        let path = |path: &Path| path.display().to_string();
        assert_eq!(
            seen,
            [
                (UNDER_TEST.to_owned(), None, (2, 20480, 0)),
                (path(a), Some(path(a)), (3, 40960, 0)),
                (path(b), Some(path(b)), (4, 61440, 0)),
            ]
        );
        // The summary alone is left.
        assert_eq!(fs::read_dir(under_test).unwrap().count(), 1);
        assert_eq!(fs::read_dir(a).unwrap().count(), 0);
        let summary = fs::read_to_string(under_test.join("summary.json")).unwrap();
        assert!(summary.starts_with("{\"size\":20480,\"mounts\":["), "{summary}");
    }

    #[test]
    fn what_cannot_be_moved_or_written_is_named() {
        let directory = tempfile::tempdir().unwrap();
        for size in [0, 4095, MAX_SIZE + 4096] {
            let error = run(directory.path(), size, &[]).with_control::<UnixStream>(None).unwrap_err();
            assert!(matches!(error, MountsWorkloadError::Size { .. }), "{size}");
        }
        let mounts = ["/proc/nowhere".into()];
        let error = run(directory.path(), 4096, &mounts).with_control::<UnixStream>(None).unwrap_err();
        assert_eq!(error.to_string(), "cannot create /proc/nowhere/bpfassay-mounts");
    }
}

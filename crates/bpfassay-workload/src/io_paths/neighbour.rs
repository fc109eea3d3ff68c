// SPDX-License-Identifier: MIT OR Apache-2.0
//! The neighbour: a process that reads and writes its own file all the time. A tracer that does not
//! distinguish cgroups therefore counts too much.

use std::{
    fs::OpenOptions,
    io,
    path::{Path, PathBuf},
};

use super::{
    buffer::{Buffer, first_difference},
    path_calls,
};

/// Size of the file, in bytes.
const SIZE: usize = 1 << 20;

/// Bytes per call. This is neither a multiple of a page nor a size that workloads use, so that
/// mixed-up counts show.
const TRANSFER: usize = 60_000;

/// Printed once the neighbour has written and read for the first time.
pub const GREETING: &[u8] = b"n";

/// Why the neighbour stopped.
#[derive(Debug, thiserror::Error)]
pub enum NeighbourError {
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
    /// The neighbour read data that it had not written.
    #[error("wrong data at offset {at} of {}", file.display())]
    Data {
        /// Offset of the first wrong byte.
        at: u64,
        /// Path of the file.
        file: PathBuf,
    },
    /// The greeting cannot be written.
    #[error("cannot report that it has begun")]
    Greeting(#[source] io::Error),
}

/// Writes and reads `file` until the process is killed, or `rounds` are done. Writes [`GREETING`]
/// to `out` after the first round.
///
/// # Errors
/// [`NeighbourError`] if the file cannot be created, written or read, or `out` cannot be written.
pub fn keep_busy(file: &Path, rounds: Option<u64>, mut out: impl io::Write) -> Result<(), NeighbourError> {
    let failed = |action| move |source| NeighbourError::File { action, file: file.to_owned(), source };
    let opened =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(file).map_err(failed("create"))?;
    let mut buffer = Buffer::zeroed(TRANSFER);
    let mut round = 0u64;
    while rounds.is_none_or(|rounds| round < rounds) {
        let data = Buffer::filled(SIZE, round);
        let mut at = 0;
        while at < SIZE {
            let end = SIZE.min(at + TRANSFER);
            let result = if (at / TRANSFER).is_multiple_of(2) {
                path_calls::pwrite(&opened, &data[at..end], at as libc::off_t)
            } else {
                path_calls::pwritev(&opened, &data[at..end], at)
            };
            at += result.map_err(failed("write"))?;
        }
        let mut at = 0;
        while at < SIZE {
            let end = SIZE.min(at + TRANSFER);
            let part = &mut buffer[..end - at];
            let result = if (at / TRANSFER).is_multiple_of(2) {
                path_calls::pread(&opened, part, at)
            } else {
                path_calls::preadv(&opened, part, at)
            };
            let moved = match result.map_err(failed("read"))? {
                0 => return Err(failed("read")(io::ErrorKind::UnexpectedEof.into())),
                moved => moved,
            };
            if let Some(at) = first_difference(&part[..moved], round, at as u64) {
                return Err(NeighbourError::Data { at, file: file.to_owned() });
            }
            at += moved;
        }
        if round == 0 {
            out.write_all(GREETING).and_then(|()| out.flush()).map_err(NeighbourError::Greeting)?;
        }
        round += 1;
    }
    Ok(())
}

/// Runs [`keep_busy`] without end, with the greeting on standard output.
///
/// # Errors
/// The errors of [`keep_busy`].
pub fn run(file: &Path) -> Result<(), NeighbourError> {
    keep_busy(file, None, io::stdout().lock())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_greets_once_and_leaves_what_it_wrote_last() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("neighbour");
        let mut out = Vec::new();
        keep_busy(&file, Some(3), &mut out).unwrap();
        assert_eq!(out, GREETING);
        let left = std::fs::read(&file).unwrap();
        assert_eq!((left.len(), first_difference(&left, 2, 0)), (SIZE, None));
    }

    #[test]
    fn what_it_cannot_write_is_named() {
        let error = keep_busy(Path::new("/proc/neighbour"), Some(1), io::sink()).unwrap_err();
        assert_eq!(error.to_string(), "cannot create /proc/neighbour");
    }
}

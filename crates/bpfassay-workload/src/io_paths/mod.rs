// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workload `io-paths`: moves a known number of bytes by each way between a program and a file.
//!
//! [`bpfassay_protocol::io_path`] lists the paths and what they move. Each path runs in its own
//! directory, which is removed afterwards:
//!
//! 1. Files are prepared.
//! 2. The beginning of the phase is reported to the agent.
//! 3. Only the path's calls are made, and no other call on the file system.
//! 4. The results of the calls are reported to the agent.
//! 5. The data are checked.
//!
//! If the kernel or the file system refuses a path's call, the call and its error are reported, and
//! the next path follows. Any other problem ends the workload.
//!
//! Bytes move in calls of 16 KiB, so that short transfers, several requests in flight, and partial
//! pages occur.

mod aio;
mod buffer;
mod copy;
mod error;
pub mod mounts;
pub mod neighbour;
mod path_calls;
mod path_names;
mod stage;
mod together;
mod uring;

use std::{fs, io, path::PathBuf};

use bpfassay_protocol::{
    IoPath, Operation,
    io_path::{IoPathsSummary, PathReport, RefusedCall},
    operation::Direction,
};

pub use self::error::PathsError;
use self::{
    aio::{AioContext, DEPTH},
    buffer::Buffer,
    copy::Sink,
    path_calls::Map,
    stage::{PathFailure, PathStage, refused},
    uring::{Memory, Ring},
};
use crate::engine::control_channel::{self, Control};

/// The most bytes per path.
pub const MAX_SIZE: u64 = 1 << 30;

/// One run of the workload.
#[derive(Debug, Clone)]
pub struct IoPathsRun {
    /// A directory on the file system under test.
    pub directory: PathBuf,
    /// Bytes per path: a multiple of 4096, at most [`MAX_SIZE`].
    pub size: u64,
    /// Path of the summary (JSON), if one is wanted.
    pub summary: Option<PathBuf>,
}

impl IoPathsRun {
    /// Runs every path and returns the result of each. The environment names the control channel.
    ///
    /// # Errors
    /// [`PathsError`]: wrong data, impossible results of calls, or files that cannot be prepared.
    pub fn start(&self) -> Result<IoPathsSummary, PathsError> {
        let size = usize::try_from(self.size)
            .ok()
            .filter(|_| (4096..=MAX_SIZE).contains(&self.size) && self.size.is_multiple_of(4096))
            .ok_or(PathsError::Size { size: self.size })?;
        let mut control = control_channel::descriptor()?.map(Control::take);
        let mut paths = Vec::new();
        for &path in IoPath::ALL {
            let directory = self.directory.join(path.name());
            fs::create_dir_all(&directory).map_err(|source| PathsError::File {
                path,
                action: "make",
                file: directory.clone(),
                source,
            })?;
            let mut stage = PathStage::new(path, size, &directory, control.as_mut());
            let refused = match run_path(&mut stage) {
                Ok(()) => None,
                Err(PathFailure::Refused { call, source }) => Some(refusal(call, &source)),
                Err(PathFailure::Failed(error)) => return Err(error),
            };
            stage.clear()?;
            paths.push(PathReport { path, refused });
        }
        let summary = IoPathsSummary { size: self.size, paths };
        if let Some(file) = &self.summary {
            serde_json::to_vec(&summary)
                .map_err(io::Error::from)
                .and_then(|text| fs::write(file, text))
                .map_err(|source| PathsError::Summary { file: file.clone(), source })?;
        }
        Ok(summary)
    }
}

fn refusal(call: &str, source: &io::Error) -> RefusedCall {
    RefusedCall { call: call.to_owned(), errno: source.raw_os_error().unwrap_or_default(), message: source.to_string() }
}

/// Runs the stage's path.
fn run_path(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    use Direction::{In, Out};
    match stage.path {
        IoPath::FirstTouch => together::reading(stage),
        IoPath::Read => reading(stage, 0, "read", Operation::Read, |file, into, _| path_calls::read(file, into)),
        IoPath::Write => writing(stage, 0, "write", Operation::Write, |file, from, _| path_calls::write(file, from)),
        IoPath::Pread => reading(stage, 0, "pread64", Operation::Read, path_calls::pread),
        IoPath::Pwrite => writing(stage, 0, "pwrite64", Operation::Write, pwrite),
        IoPath::Readv => reading(stage, 0, "readv", Operation::Readv, |file, into, _| path_calls::readv(file, into)),
        IoPath::Writev => {
            writing(stage, 0, "writev", Operation::Writev, |file, from, _| path_calls::writev(file, from))
        }
        IoPath::Preadv => reading(stage, 0, "preadv", Operation::Readv, path_calls::preadv),
        IoPath::Pwritev => writing(stage, 0, "pwritev", Operation::Writev, path_calls::pwritev),
        IoPath::Preadv2 => reading_with(stage, 0),
        IoPath::Pwritev2 => writing_with(stage, 0),
        IoPath::Preadv2Nowait => reading_with(stage, libc::RWF_NOWAIT),
        IoPath::Pwritev2Dsync => writing_with(stage, libc::RWF_DSYNC),
        IoPath::DirectRead => reading(stage, libc::O_DIRECT, "pread64", Operation::Read, path_calls::pread),
        IoPath::DirectWrite => writing(stage, libc::O_DIRECT, "pwrite64", Operation::Write, pwrite),
        IoPath::MapRead => map_read(stage),
        IoPath::MapWrite => map_write(stage),
        IoPath::PosixAioRead => posix_aio(stage, In),
        IoPath::PosixAioWrite => posix_aio(stage, Out),
        IoPath::LibaioRead => libaio(stage, In, false, 0),
        IoPath::LibaioWrite => libaio(stage, Out, false, 0),
        IoPath::LibaioReadv => libaio(stage, In, true, 0),
        IoPath::LibaioWritev => libaio(stage, Out, true, 0),
        IoPath::LibaioDirectRead => libaio(stage, In, false, libc::O_DIRECT),
        IoPath::LibaioDirectWrite => libaio(stage, Out, false, libc::O_DIRECT),
        IoPath::IoUringRead => io_uring(stage, In, Memory::Plain, 0),
        IoPath::IoUringWrite => io_uring(stage, Out, Memory::Plain, 0),
        IoPath::IoUringReadv => io_uring(stage, In, Memory::Pieces, 0),
        IoPath::IoUringWritev => io_uring(stage, Out, Memory::Pieces, 0),
        IoPath::IoUringReadFixed => io_uring(stage, In, Memory::Fixed, 0),
        IoPath::IoUringWriteFixed => io_uring(stage, Out, Memory::Fixed, 0),
        IoPath::IoUringDirectRead => io_uring(stage, In, Memory::Plain, libc::O_DIRECT),
        IoPath::IoUringDirectWrite => io_uring(stage, Out, Memory::Plain, libc::O_DIRECT),
        IoPath::IoUringSplice => copy::by_ring(stage),
        IoPath::SendfileFile => copy::between_files(stage, "sendfile", |source, target, length| {
            path_calls::sendfile(std::os::fd::AsRawFd::as_raw_fd(target), source, length)
        }),
        IoPath::SendfilePipe => sendfile(stage, &Sink::Pipe),
        IoPath::SendfileSocket => sendfile(stage, &Sink::Socket),
        IoPath::SpliceIn => copy::out_of_file(stage, "splice", &Sink::Pipe, |file, pipe, _, length| {
            path_calls::splice(std::os::fd::AsRawFd::as_raw_fd(file), pipe, length)
        }),
        IoPath::SpliceOut => copy::into_file(stage),
        IoPath::CopyFileRange => copy::between_files(stage, "copy_file_range", path_calls::copy_file_range),
        IoPath::Fallocate => fallocate(stage),
        IoPath::ShortRead => short_read(stage),
        IoPath::EndOfFile => end_of_file(stage),
        IoPath::FailedRead => failed_read(stage),
        IoPath::FailedWrite => failed_write(stage),
        IoPath::Open => path_names::open(stage),
        IoPath::FailedOpen => path_names::failed_open(stage),
        IoPath::Create => path_names::create(stage),
        IoPath::FailedCreate => path_names::failed_create(stage),
        IoPath::Mknod => path_names::mknod(stage),
        IoPath::Mkdir => path_names::mkdir(stage),
        IoPath::FailedMkdir => path_names::failed_mkdir(stage),
        IoPath::Rename => path_names::rename(stage),
        IoPath::FailedRename => path_names::failed_rename(stage),
        IoPath::Unlink => path_names::unlink(stage),
        IoPath::FailedUnlink => path_names::failed_unlink(stage),
        IoPath::Rmdir => path_names::rmdir(stage),
        IoPath::FailedRmdir => path_names::failed_rmdir(stage),
        IoPath::Fsync => path_names::fsync(stage),
        IoPath::FailedFsync => path_names::failed_fsync(stage),
    }
}

fn pwrite(file: &fs::File, from: &[u8], at: usize) -> io::Result<usize> {
    path_calls::pwrite(file, from, at as libc::off_t)
}

/// Reads a file from beginning to end, call by call.
fn reading(
    stage: &mut PathStage<'_>,
    flags: i32,
    call: &'static str,
    operation: Operation,
    transfer: impl Fn(&fs::File, &mut [u8], usize) -> io::Result<usize>,
) -> Result<(), PathFailure> {
    let source = stage.source(flags)?;
    let mut data = Buffer::zeroed(stage.size);
    stage.phase(|stage, moved| {
        stage.each(call, moved, &[operation], |range| transfer(&source, &mut data[range.clone()], range.start))
    })?;
    stage.check(&data)
}

/// Writes a file from beginning to end, call by call.
fn writing(
    stage: &mut PathStage<'_>,
    flags: i32,
    call: &'static str,
    operation: Operation,
    transfer: impl Fn(&fs::File, &[u8], usize) -> io::Result<usize>,
) -> Result<(), PathFailure> {
    let target = stage.target(flags)?;
    let data = Buffer::filled(stage.size, stage.seed());
    stage.phase(|stage, moved| {
        stage.each(call, moved, &[operation], |range| transfer(&target, &data[range.clone()], range.start))
    })?;
    drop(target);
    stage.check_target()
}

fn reading_with(stage: &mut PathStage<'_>, flags: i32) -> Result<(), PathFailure> {
    reading(stage, 0, "preadv2", Operation::Readv, |file, into, at| path_calls::preadv2(file, into, at, flags))
}

fn writing_with(stage: &mut PathStage<'_>, flags: i32) -> Result<(), PathFailure> {
    writing(stage, 0, "pwritev2", Operation::Writev, |file, from, at| path_calls::pwritev2(file, from, at, flags))
}

fn map_read(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let source = stage.source(0)?;
    let mut data = Buffer::zeroed(stage.size);
    let map = Map::new(&source, stage.size, false).map_err(refused("mmap"))?;
    stage.phase(|stage, moved| {
        map.load(&mut data);
        moved.count_bytes(Operation::MapRead, stage.size);
        Ok(())
    })?;
    drop(map);
    stage.check(&data)
}

fn map_write(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let target = stage.target(0)?;
    stage.lengthen(&target)?;
    let data = Buffer::filled(stage.size, stage.seed());
    let mut map = Map::new(&target, stage.size, true).map_err(refused("mmap"))?;
    stage.phase(|stage, moved| {
        map.store(&data);
        moved.count_bytes(Operation::MapWrite, stage.size);
        map.sync().map_err(refused("msync"))
    })?;
    drop((map, target));
    stage.check_target()
}

/// Returns a file, and memory for moving all of it in the given direction. For reading, the file
/// holds the data; for writing, the memory does.
fn ends(stage: &PathStage<'_>, direction: Direction, flags: i32) -> Result<(fs::File, Buffer), PathFailure> {
    Ok(match direction {
        Direction::In => (stage.source(flags)?, Buffer::zeroed(stage.size)),
        Direction::Out => (stage.target(flags)?, Buffer::filled(stage.size, stage.seed())),
    })
}

/// Checks what [`ends`] returned, after the data have moved.
fn check(stage: &PathStage<'_>, direction: Direction, file: fs::File, data: &[u8]) -> Result<(), PathFailure> {
    drop(file);
    match direction {
        Direction::In => stage.check(data),
        Direction::Out => stage.check_target(),
    }
}

const fn operation(direction: Direction) -> Operation {
    match direction {
        Direction::In => Operation::Read,
        Direction::Out => Operation::Write,
    }
}

fn posix_aio(stage: &mut PathStage<'_>, direction: Direction) -> Result<(), PathFailure> {
    let (file, mut data) = ends(stage, direction, 0)?;
    let (memory, call) = (data.as_mut_ptr(), if direction == Direction::In { "aio_read" } else { "aio_write" });
    stage.phase(|stage, moved| {
        stage.batches(call, moved, operation(direction), DEPTH, |ranges| aio::posix(direction, &file, memory, ranges))
    })?;
    check(stage, direction, file, &data)
}

fn libaio(stage: &mut PathStage<'_>, direction: Direction, vectored: bool, flags: i32) -> Result<(), PathFailure> {
    let (file, mut data) = ends(stage, direction, flags)?;
    let context = AioContext::new().map_err(refused("io_setup"))?;
    let memory = data.as_mut_ptr();
    stage.phase(|stage, moved| {
        stage.batches("io_submit", moved, operation(direction), DEPTH, |ranges| {
            context.run(direction, vectored, &file, memory, ranges)
        })
    })?;
    check(stage, direction, file, &data)
}

fn io_uring(stage: &mut PathStage<'_>, direction: Direction, kind: Memory, flags: i32) -> Result<(), PathFailure> {
    let (file, mut data) = ends(stage, direction, flags)?;
    let mut ring = Ring::new().map_err(refused("io_uring_setup"))?;
    let memory = data.as_mut_ptr();
    if kind == Memory::Fixed {
        ring.register(memory, stage.size).map_err(refused("io_uring_register"))?;
    }
    stage.phase(|stage, moved| {
        stage.batches("io_uring request", moved, operation(direction), DEPTH, |ranges| {
            ring.run(direction, kind, &file, memory, ranges)
        })
    })?;
    // The ring is dropped before the memory that it may have registered.
    drop(ring);
    check(stage, direction, file, &data)
}

fn sendfile(stage: &mut PathStage<'_>, sink: &Sink) -> Result<(), PathFailure> {
    copy::out_of_file(stage, "sendfile", sink, |file, sink, _, length| path_calls::sendfile(sink, file, length))
}

fn fallocate(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let target = stage.target(0)?;
    stage.phase(|stage, moved| {
        path_calls::fallocate(&target, stage.size).map_err(refused("fallocate"))?;
        moved.count_bytes(Operation::Write, 0);
        Ok(())
    })
}

/// Reads at the end of the file, and requests twice as many bytes as are left.
fn short_read(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let source = stage.source(0)?;
    let mut data = Buffer::zeroed(2 * stage.size);
    stage.phase(|stage, moved| {
        // Each call reads the last bytes of the file, as many as the size of its range, and
        // requests twice as many (`IoPath::requested`).
        stage.each("pread64", moved, &[Operation::Read], |range| {
            path_calls::pread(&source, &mut data[..2 * range.len()], stage.size - range.len())
        })
    })?;
    let last = stage.size - (stage.size - 1) / stage::CHUNK * stage::CHUNK;
    match buffer::first_difference(&data[..last], stage.seed(), (stage.size - last) as u64) {
        None => Ok(()),
        Some(at) => Err(PathsError::Data { path: stage.path, at, size: stage.size as u64 }.into()),
    }
}

fn end_of_file(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let source = stage.source(0)?;
    let mut data = [0; 4096];
    stage.phase(|stage, moved| {
        for _ in 0..path_names::COUNT {
            let result = path_calls::pread(&source, &mut data, stage.size);
            moved.count(Operation::Read, &result);
            match result {
                Ok(0) => {}
                Ok(bytes) => return Err(stage.wrong("pread64", format!("read {bytes} bytes at the end of the file"))),
                Err(source) => return Err(PathFailure::Refused { call: "pread64", source }),
            }
        }
        Ok(())
    })
}

fn failed_read(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let name = stage.file(".");
    let directory = fs::File::open(&name).map_err(stage.failed("open", &name))?;
    let mut data = [0; 512];
    path_names::failing(stage, "read", Operation::Read, libc::EISDIR, || path_calls::read(&directory, &mut data))
}

fn failed_write(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let target = stage.target(0)?;
    let data = [0; 512];
    // The sum of offset and length does not fit into `loff_t` (rw_verify_area, fs/read_write.c).
    path_names::failing(stage, "pwrite64", Operation::Write, libc::EINVAL, || {
        path_calls::pwrite(&target, &data, libc::off_t::MAX - 100)
    })
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths on which the kernel moves bytes between two descriptors.

use std::{
    fs::File,
    io::{self, PipeReader, PipeWriter, Read as _, Write as _, pipe},
    os::{
        fd::{AsRawFd as _, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
};

use bpfassay_protocol::Operation;

use super::{
    buffer::Buffer,
    path_calls,
    stage::{PathFailure, PathStage, refused},
    uring::Ring,
};

const BOTH: [Operation; 2] = [Operation::Read, Operation::Write];

/// The destination of a file's bytes.
pub(crate) enum Sink {
    Pipe,
    Socket,
}

/// Moves bytes between two files, by `transfer(source, target, length)`.
pub(crate) fn between_files(
    stage: &mut PathStage<'_>,
    call: &'static str,
    transfer: impl Fn(&File, &File, usize) -> io::Result<usize>,
) -> Result<(), PathFailure> {
    let (source, target) = (stage.source(0)?, stage.target(0)?);
    stage.phase(|stage, moved| stage.each(call, moved, &BOTH, |range| transfer(&source, &target, range.len())))?;
    drop((source, target));
    stage.check_target()
}

/// Moves bytes from a file into a pipe or socket, by `transfer(source, sink, offset, length)`. The
/// bytes are read from the sink at once. Pipes and sockets are on file systems of their own, which
/// are not counted here.
pub(crate) fn out_of_file(
    stage: &mut PathStage<'_>,
    call: &'static str,
    sink: &Sink,
    mut transfer: impl FnMut(&File, RawFd, usize, usize) -> io::Result<usize>,
) -> Result<(), PathFailure> {
    let source = stage.source(0)?;
    let (mut drain, sink): (Box<dyn io::Read>, OwnedFd) = match sink {
        Sink::Pipe => pipe().map(|(reader, writer)| (Box::new(reader) as Box<dyn io::Read>, writer.into())),
        Sink::Socket => UnixStream::pair().map(|(a, b)| (Box::new(a) as Box<dyn io::Read>, b.into())),
    }
    .map_err(refused("pipe or socketpair"))?;
    let mut data = Buffer::zeroed(stage.size);
    stage.phase(|stage, moved| {
        let mut drained = Ok(());
        stage.each(call, moved, &[Operation::Read], |range| {
            let length = transfer(&source, sink.as_raw_fd(), range.start, range.len())?;
            if let Some(part) = data.get_mut(range.start..range.start + length)
                && let Err(error) = drain.read_exact(part)
            {
                drained = Err(error);
            }
            Ok(length)
        })?;
        drained.map_err(|error| stage.wrong("read", format!("of the other end failed: {error}")))
    })?;
    stage.check(&data)
}

/// Moves bytes from a pipe into a file.
pub(crate) fn into_file(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let target = stage.target(0)?;
    let (reader, mut writer): (PipeReader, PipeWriter) = pipe().map_err(refused("pipe"))?;
    let data = Buffer::filled(stage.size, stage.seed());
    stage.phase(|stage, moved| {
        let mut held = 0;
        stage.each("splice", moved, &[Operation::Write], |range| {
            // Bytes that an earlier call left in the pipe are not written again.
            writer.write_all(&data[range.start + held..range.end])?;
            let length = path_calls::splice(reader.as_raw_fd(), target.as_raw_fd(), range.len())?;
            held = range.len() - length;
            Ok(length)
        })
    })?;
    drop(target);
    stage.check_target()
}

/// Moves bytes from a file into a pipe by io_uring.
pub(crate) fn by_ring(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let mut ring = Ring::new().map_err(refused("io_uring_setup"))?;
    out_of_file(stage, "IORING_OP_SPLICE", &Sink::Pipe, |file, pipe, at, length| ring.splice(file, pipe, at, length))
}

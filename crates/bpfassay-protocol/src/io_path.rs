// SPDX-License-Identifier: MIT OR Apache-2.0
//! I/O paths: the ways in which the workload `io-paths` moves data between a program and a file.
//!
//! The program that does the I/O, the report that evaluates a tracer's counts, and the
//! documentation share one table. It has the system calls of each path, the bytes moved by
//! operation, and a special property.
//!
//! A path without `read` or `write` system calls counts under the operation of the same direction.
//! Data read from a file on the file system under test count as [`Operation::Read`], and data
//! written to one as [`Operation::Write`]. Mapped files count as [`Operation::MapRead`] and
//! [`Operation::MapWrite`]. A call is one request that the kernel completes with one result: a
//! system call, an AIO control block, or a submission queue entry.

use serde::{Deserialize, Serialize};

use crate::{Operation, names};

/// The data that a path moves under one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// The operation.
    pub operation: Operation,
    /// The amount of data.
    pub amount: Amount,
}

/// The part of the workload's size that a path moves under an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// Every byte.
    Whole,
    /// Every byte, in pages that page faults make accessible, without calls.
    Pages,
    /// No byte: the calls succeed but move nothing.
    Nothing,
    /// No byte: the calls fail.
    Errors,
    /// Not a call: a tracer must count nothing.
    NoCall,
}

macro_rules! paths {
    ($($variant:ident = $name:literal, $calls:literal, [$($operation:ident: $amount:ident),+], $note:literal;)+) => {
        names! {
            /// One way to move data, or one operation on names. This is the order of execution.
            pub enum IoPath: "I/O path" {
                $(#[doc = $note] $variant = $name),+
            }
        }

        impl IoPath {
            /// Returns the system calls that move the data or do the operation.
            #[must_use]
            pub const fn calls(self) -> &'static str {
                match self { $(Self::$variant => $calls),+ }
            }

            /// Returns what the path moves, by operation. It is never empty.
            #[must_use]
            pub const fn expected(self) -> &'static [Expected] {
                match self {
                    $(Self::$variant => const {
                        &[$(Expected { operation: Operation::$operation, amount: Amount::$amount }),+]
                    }),+
                }
            }

            /// Returns the special property, in one sentence.
            #[must_use]
            pub const fn note(self) -> &'static str {
                match self { $(Self::$variant => $note),+ }
            }
        }
    };
}

paths! {
    FirstTouch = "first-touch", "preadv", [Readv: Whole],
        "Eight processes at once make their first call, and the first of its operation: what a tracer inserts for it is new to all of them.";
    Read = "read", "read", [Read: Whole], "Sequential reads.";
    Write = "write", "write", [Write: Whole], "Sequential writes.";
    Pread = "pread", "pread64", [Read: Whole], "Reads at offsets.";
    Pwrite = "pwrite", "pwrite64", [Write: Whole], "Writes at offsets.";
    Readv = "readv", "readv", [Readv: Whole], "Sequential reads into three pieces.";
    Writev = "writev", "writev", [Writev: Whole], "Sequential writes from three pieces.";
    Preadv = "preadv", "preadv", [Readv: Whole], "Reads at offsets into three pieces.";
    Pwritev = "pwritev", "pwritev", [Writev: Whole], "Writes at offsets from three pieces.";
    Preadv2 = "preadv2", "preadv2", [Readv: Whole], "The same system call with flags, of which none is set.";
    Pwritev2 = "pwritev2", "pwritev2", [Writev: Whole], "The same system call with flags, of which none is set.";
    Preadv2Nowait = "preadv2-nowait", "preadv2(RWF_NOWAIT)", [Readv: Whole],
        "Reads of cached data only; file systems that cannot promise that refuse it.";
    Pwritev2Dsync = "pwritev2-dsync", "pwritev2(RWF_DSYNC)", [Writev: Whole], "Writes that return once they are stable.";
    DirectRead = "direct-read", "pread64, O_DIRECT", [Read: Whole], "Reads past the page cache.";
    DirectWrite = "direct-write", "pwrite64, O_DIRECT", [Write: Whole], "Writes past the page cache.";
    MapRead = "map-read", "mmap", [MapRead: Pages],
        "Loads from a mapping: no call moves the bytes, only page faults can be seen.";
    MapWrite = "map-write", "mmap, msync", [MapWrite: Pages],
        "Stores into a mapping: no call moves the bytes, only page faults can be seen.";
    PosixAioRead = "posix-aio-read", "pread64", [Read: Whole],
        "aio_read of the C library: threads of the process make plain calls.";
    PosixAioWrite = "posix-aio-write", "pwrite64", [Write: Whole],
        "aio_write of the C library: threads of the process make plain calls.";
    LibaioRead = "libaio-read", "io_submit(IOCB_CMD_PREAD)", [Read: Whole], "Through the page cache, where io_submit waits.";
    LibaioWrite = "libaio-write", "io_submit(IOCB_CMD_PWRITE)", [Write: Whole],
        "Through the page cache, where io_submit waits.";
    LibaioReadv = "libaio-readv", "io_submit(IOCB_CMD_PREADV)", [Read: Whole], "The same with three pieces.";
    LibaioWritev = "libaio-writev", "io_submit(IOCB_CMD_PWRITEV)", [Write: Whole], "The same with three pieces.";
    LibaioDirectRead = "libaio-direct-read", "io_submit(IOCB_CMD_PREAD), O_DIRECT", [Read: Whole],
        "Past the page cache: completed elsewhere, by a task that is not the caller.";
    LibaioDirectWrite = "libaio-direct-write", "io_submit(IOCB_CMD_PWRITE), O_DIRECT", [Write: Whole],
        "Past the page cache: completed elsewhere, by a task that is not the caller.";
    IoUringRead = "io-uring-read", "io_uring_enter(IORING_OP_READ)", [Read: Whole],
        "Done at once, or by a worker thread of the process.";
    IoUringWrite = "io-uring-write", "io_uring_enter(IORING_OP_WRITE)", [Write: Whole],
        "Done at once, or by a worker thread of the process.";
    IoUringReadv = "io-uring-readv", "io_uring_enter(IORING_OP_READV)", [Read: Whole], "The same with three pieces.";
    IoUringWritev = "io-uring-writev", "io_uring_enter(IORING_OP_WRITEV)", [Write: Whole], "The same with three pieces.";
    IoUringReadFixed = "io-uring-read-fixed", "io_uring_enter(IORING_OP_READ_FIXED)", [Read: Whole],
        "Into a buffer that was registered before.";
    IoUringWriteFixed = "io-uring-write-fixed", "io_uring_enter(IORING_OP_WRITE_FIXED)", [Write: Whole],
        "From a buffer that was registered before.";
    IoUringDirectRead = "io-uring-direct-read", "io_uring_enter(IORING_OP_READ), O_DIRECT", [Read: Whole],
        "Past the page cache, completed elsewhere.";
    IoUringDirectWrite = "io-uring-direct-write", "io_uring_enter(IORING_OP_WRITE), O_DIRECT", [Write: Whole],
        "Past the page cache, completed elsewhere.";
    IoUringSplice = "io-uring-splice", "io_uring_enter(IORING_OP_SPLICE)", [Read: Whole], "From a file into a pipe.";
    SendfileFile = "sendfile-file", "sendfile", [Read: Whole, Write: Whole], "From file to file.";
    SendfilePipe = "sendfile-pipe", "sendfile", [Read: Whole], "From a file into a pipe; some kernels refuse it.";
    SendfileSocket = "sendfile-socket", "sendfile", [Read: Whole], "From a file into a stream socket.";
    SpliceIn = "splice-in", "splice", [Read: Whole], "From a file into a pipe.";
    SpliceOut = "splice-out", "splice", [Write: Whole], "From a pipe into a file.";
    CopyFileRange = "copy-file-range", "copy_file_range", [Read: Whole, Write: Whole],
        "From file to file; on NFSv4.2 the server copies and no byte comes to the client.";
    Fallocate = "fallocate", "fallocate", [Write: NoCall], "Space without data: no byte moves.";
    ShortRead = "short-read", "pread64", [Read: Whole], "Asks for twice of what there is before the end of the file.";
    EndOfFile = "end-of-file", "pread64", [Read: Nothing], "Reads at the end of the file return 0.";
    FailedRead = "failed-read", "read", [Read: Errors], "Reads of a directory: EISDIR.";
    FailedWrite = "failed-write", "pwrite64", [Write: Errors], "Writes that would end beyond the largest offset: EINVAL.";
    Open = "open", "openat", [Open: Nothing], "Opens files that exist.";
    FailedOpen = "failed-open", "openat", [Open: Errors], "Opens files that do not exist: ENOENT.";
    Create = "create", "openat(O_CREAT | O_EXCL)", [Open: Nothing, Create: Nothing], "Creates files by opening them.";
    FailedCreate = "failed-create", "openat(O_CREAT | O_EXCL)", [Open: Errors], "Creates what exists: EEXIST.";
    Mknod = "mknod", "mknodat", [Create: Nothing], "Creates files without opening them.";
    Mkdir = "mkdir", "mkdirat", [Mkdir: Nothing], "Makes directories.";
    FailedMkdir = "failed-mkdir", "mkdirat", [Mkdir: Errors], "Makes what exists: EEXIST.";
    Rename = "rename", "renameat", [Rename: Nothing], "Renames files within a directory.";
    FailedRename = "failed-rename", "renameat", [Rename: Errors], "Renames what does not exist: ENOENT.";
    Unlink = "unlink", "unlinkat", [Unlink: Nothing], "Removes files.";
    FailedUnlink = "failed-unlink", "unlinkat", [Unlink: Errors], "Removes what does not exist: ENOENT.";
    Rmdir = "rmdir", "unlinkat(AT_REMOVEDIR)", [Rmdir: Nothing], "Removes directories.";
    FailedRmdir = "failed-rmdir", "unlinkat(AT_REMOVEDIR)", [Rmdir: Errors], "Removes a directory that is not empty.";
    Fsync = "fsync", "fsync, fdatasync", [Fsync: Nothing], "Both in turn.";
    FailedFsync = "failed-fsync", "fsync, fdatasync", [Fsync: Errors],
        "Both in turn on a descriptor that is a place only (O_PATH): EBADF.";
}

impl IoPath {
    /// Returns the bytes that the path's calls request if they differ from the `returned` bytes.
    /// This distinguishes tools that count requested bytes from tools that count moved bytes.
    #[must_use]
    pub const fn requested(self, returned: u64) -> Option<u64> {
        match self {
            // See the note of this path.
            Self::ShortRead => Some(returned.saturating_mul(2)),
            _ => None,
        }
    }
}

/// The outcome of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PathReport {
    /// The path.
    pub path: IoPath,
    /// The refusal of kernel or file system; `None` if the path was run and its data were right.
    pub refused: Option<RefusedCall>,
}

/// A call that a path needs and lacks. The path was not executed, so no tracer is evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RefusedCall {
    /// The name of the call.
    pub call: String,
    /// The error number, as a positive value.
    pub errno: i32,
    /// The error message.
    pub message: String,
}

/// Summary of the workload `io-paths`, which it writes as JSON at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct IoPathsSummary {
    /// Number of bytes per path.
    pub size: u64,
    /// The outcome of every path, in the order of [`IoPath::ALL`].
    pub paths: Vec<PathReport>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Direction;

    #[test]
    fn every_operation_that_moves_data_or_names_has_a_path() {
        // The kernel does not do MPI-IO: its data take one of the paths of the file system.
        let of_mpi = [Operation::MpiOpen, Operation::MpiRead, Operation::MpiWrite];
        for &operation in Operation::COUNTED.iter().filter(|operation| !of_mpi.contains(operation)) {
            let by: Vec<_> = IoPath::ALL
                .iter()
                .filter(|path| path.expected().iter().any(|expected| expected.operation == operation))
                .collect();
            assert!(!by.is_empty(), "{operation}");
        }
    }

    #[test]
    fn a_path_in_both_directions_has_both_and_each_operation_once() {
        for path in IoPath::ALL {
            let expected = path.expected();
            for (index, one) in expected.iter().enumerate() {
                assert!(expected[..index].iter().all(|other| other.operation != one.operation), "{path}");
                // Bytes require a direction.
                let moves = matches!(one.amount, Amount::Whole | Amount::Pages);
                assert!(!moves || one.operation.direction().is_some(), "{path}");
                let mapped = matches!(one.operation, Operation::MapRead | Operation::MapWrite);
                assert_eq!(one.amount == Amount::Pages, mapped, "{path}");
            }
            assert!(!path.calls().is_empty() && path.note().ends_with('.'), "{path}");
        }
        let both = IoPath::CopyFileRange.expected().iter().map(|expected| expected.operation.direction());
        assert_eq!(both.collect::<Vec<_>>(), [Some(Direction::In), Some(Direction::Out)]);
    }

    #[test]
    fn phases_are_named_after_paths() {
        assert_eq!("io-uring-read-fixed".parse(), Ok(IoPath::IoUringReadFixed));
        assert!("writecheck".parse::<IoPath>().is_err());
    }
}

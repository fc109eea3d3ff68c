// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations that a workload does and a tracer counts.

use crate::names;

names! {
    /// One kind of file operation, named as in the virtual file system.
    pub enum Operation: "operation" {
        /// Data read by `read`, `pread64` and similar calls (`vfs_read`).
        Read = "read",
        /// Data written by `write`, `pwrite64` and similar calls (`vfs_write`).
        Write = "write",
        /// Data read by `readv`, `preadv` and `preadv2` (`vfs_readv`).
        Readv = "readv",
        /// Data written by `writev`, `pwritev` and `pwritev2` (`vfs_writev`).
        Writev = "writev",
        /// Files opened (`do_filp_open` and `open` below it). Failed lookups are errors, if seen.
        Open = "open",
        /// Regular files created.
        Create = "create",
        /// Directories created.
        Mkdir = "mkdir",
        /// File names removed.
        Unlink = "unlink",
        /// Directories removed.
        Rmdir = "rmdir",
        /// Names changed.
        Rename = "rename",
        /// `fsync` and `fdatasync` (see [`Variant`]).
        Fsync = "fsync",
        /// Pages of a mapped file made readable by a page fault: the traceable part of reading
        /// through a mapping. Bytes are whole pages, not loads.
        MapRead = "map-read",
        /// Pages of a mapped file made writable by a page fault. Bytes are as for `map-read`.
        MapWrite = "map-write",
        /// `MPI_File_open`. The file and the mount are unknown, as for other calls of MPI-IO.
        /// System calls of the library count separately, as the operations above.
        MpiOpen = "mpi-open",
        /// `MPI_File_read` and its variants with `_at`, `_all`, `_shared` and `_ordered`. Bytes are
        /// those requested if the handle of the datatype contains its size, which predefined
        /// datatypes of MPICH and its derivatives do. Otherwise bytes are 0, and only calls are
        /// known.
        MpiRead = "mpi-read",
        /// `MPI_File_write` and its variants. Bytes are as for `mpi-read`.
        MpiWrite = "mpi-write",
        /// Data sent over TCP (`tcp_sendmsg`). Only workloads that send count it, not the tracer's
        /// probes of file operations.
        Send = "send",
        /// Data received over TCP (`tcp_recvmsg`). Only workloads count it, like `send`.
        Receive = "receive",
    }
}

impl Operation {
    /// The operations that the tracer counts, in the order of their numbers in its programs: all
    /// but network operations.
    pub const COUNTED: &'static [Self] = Self::ALL.split_at(Self::ALL.len() - 2).0;

    /// Whether this is a network operation, for which the workload's count is the truth.
    #[must_use]
    pub const fn is_network(self) -> bool {
        matches!(self, Self::Send | Self::Receive)
    }

    /// Returns the direction of the data, if the operation moves data.
    #[must_use]
    pub const fn direction(self) -> Option<Direction> {
        match self {
            Self::Read | Self::Readv | Self::MapRead => Some(Direction::In),
            Self::Write | Self::Writev | Self::MapWrite => Some(Direction::Out),
            Self::Open
            | Self::Create
            | Self::Mkdir
            | Self::Unlink
            | Self::Rmdir
            | Self::Rename
            | Self::Fsync
            | Self::MpiOpen
            | Self::MpiRead
            | Self::MpiWrite
            // Network operations do not move data from or to a file.
            | Self::Send
            | Self::Receive => None,
        }
    }
}

names! {
    /// The kind of call, for operations with several kinds.
    pub enum Variant: "variant of an operation" {
        /// An `open` by `open`, `openat`, `openat2`, `creat` or a request of io_uring.
        Open = "open",
        /// An `open` by `execve`, of a program or of its interpreter.
        Exec = "exec",
        /// An `fsync` by the system call `fsync`.
        Fsync = "fsync",
        /// An `fsync` by `fdatasync`.
        Fdatasync = "fdatasync",
    }
}

impl Variant {
    /// Returns the operation of this variant.
    #[must_use]
    pub const fn operation(self) -> Operation {
        match self {
            Self::Open | Self::Exec => Operation::Open,
            Self::Fsync | Self::Fdatasync => Operation::Fsync,
        }
    }
}

/// The direction of data, seen from the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Data move from the file to the program.
    In,
    /// Data move from the program to the file.
    Out,
}

/// Calls, bytes and errors of one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    /// Calls, including those that failed.
    pub calls: u64,
    /// Bytes: returned by successful calls for exit-side probes and workloads, requested for
    /// entry-side probes.
    pub bytes: u64,
    /// Calls that returned an error, or 0 if the probe cannot see errors (entry side).
    pub errors: u64,
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.calls = self.calls.wrapping_add(other.calls);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.errors = self.errors.wrapping_add(other.errors);
    }
}

impl std::ops::Sub for Totals {
    type Output = Self;

    /// Difference between two readings of growing counters (modulo 2^64).
    fn sub(self, earlier: Self) -> Self {
        Self {
            calls: self.calls.wrapping_sub(earlier.calls),
            bytes: self.bytes.wrapping_sub(earlier.bytes),
            errors: self.errors.wrapping_sub(earlier.errors),
        }
    }
}

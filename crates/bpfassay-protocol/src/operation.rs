// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations that a workload does and a tracer counts.

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
        /// Files opened (`do_filp_open` and `open` below it); failed lookups count as errors where the probe sees them.
        Open = "open",
        /// Regular files created.
        Create = "create",
        /// Directories made.
        Mkdir = "mkdir",
        /// Names of files removed.
        Unlink = "unlink",
        /// Directories removed.
        Rmdir = "rmdir",
        /// Names changed.
        Rename = "rename",
        /// `fsync` and `fdatasync`: see [`Variant`].
        Fsync = "fsync",
        /// Pages of a mapped file made readable by a page fault: the part of reading through a mapping that can be traced
        /// in the kernel. Bytes of whole pages, not of the loads.
        MapRead = "map-read",
        /// Pages of a mapped file made writable by a page fault; bytes as of `map-read`.
        MapWrite = "map-write",
        /// `MPI_File_open`. Which file and mount it was is not known, as for the other calls of MPI-IO; the calls that the library makes
        /// in turn are counted separately, as the operations above.
        MpiOpen = "mpi-open",
        /// `MPI_File_read` and its variants with `_at`, `_all`, `_shared` and `_ordered`. Bytes requested, where the
        /// datatype is one of those that MPICH and its derivatives predefine, whose handles contain their size; otherwise 0: then only
        /// the calls are known.
        MpiRead = "mpi-read",
        /// `MPI_File_write` and its variants; bytes as for `mpi-read`.
        MpiWrite = "mpi-write",
        /// Data sent over TCP (`tcp_sendmsg`). The tracer's probes of file operations do not count it; workloads that send count it themselves.
        Send = "send",
        /// Data received over TCP (`tcp_recvmsg`), counted as `send` is.
        Receive = "receive",
    }
}

impl Operation {
    /// Those that the tracer counts, in the order of the numbers that its programs use: all but those of the network.
    pub const COUNTED: &'static [Self] = Self::ALL.split_at(Self::ALL.len() - 2).0;

    /// Whether it is an operation of the network, for which the workload's own count is the truth.
    #[must_use]
    pub const fn is_network(self) -> bool {
        matches!(self, Self::Send | Self::Receive)
    }

    /// The direction of the data, where the operation moves data.
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
            // Not from or to a file.
            | Self::Send
            | Self::Receive => None,
        }
    }
}

names! {
    /// Which of the calls of an operation it was, of those that have several kinds of call.
    pub enum Variant: "variant of an operation" {
        /// An `open` by a call for that: `open`, `openat`, `openat2`, `creat`, a request of io_uring.
        Open = "open",
        /// An `open` by `execve`: of what it executes, and of its interpreters.
        Exec = "exec",
        /// A `fsync` by that system call.
        Fsync = "fsync",
        /// A `fsync` by `fdatasync`.
        Fdatasync = "fdatasync",
    }
}

impl Variant {
    /// The operation that it is a variant of.
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
    /// From the file into the program.
    In,
    /// From the program into the file.
    Out,
}

/// Calls, bytes and errors of one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    /// Calls made, those that failed included.
    pub calls: u64,
    /// Bytes. For exit-side probes and workloads: returned by the calls that succeeded; for entry-side probes: requested.
    pub bytes: u64,
    /// Calls that returned an error. Zero where the probe cannot see it (entry side).
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

    /// Difference of two readings of counters that only grow (modulo 2^64).
    fn sub(self, earlier: Self) -> Self {
        Self {
            calls: self.calls.wrapping_sub(earlier.calls),
            bytes: self.bytes.wrapping_sub(earlier.bytes),
            errors: self.errors.wrapping_sub(earlier.errors),
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of user space that the probe `uprobe` hooks: functions of the C library and of
//! MPI-IO.

/// The kind of value that a function returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returns {
    /// Bytes (`ssize_t`), or -1.
    Bytes,
    /// An `int`, negative for an error.
    Status,
    /// `MPI_SUCCESS`, which is 0, or the number of an error.
    Mpi,
}

impl Returns {
    /// Returns the target of the program at the return of such functions.
    #[must_use]
    pub const fn target(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Status => "status",
            Self::Mpi => "mpi",
        }
    }
}

/// A function of user space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// The target of the program at the function's entry.
    pub entry: &'static str,
    /// Names of the function. The first name that a file has is hooked: in glibc and musl, the
    /// others are names of the same code.
    pub names: &'static [&'static str],
    /// The kind of value that the function returns.
    pub returns: Returns,
}

const fn function(entry: &'static str, names: &'static [&'static str], returns: Returns) -> Function {
    Function { entry, names, returns }
}

/// Functions of the C library.
pub const C_LIBRARY: &[Function] = &[
    function("read", &["read"], Returns::Bytes),
    function("read", &["pread64", "pread"], Returns::Bytes),
    function("write", &["write"], Returns::Bytes),
    function("write", &["pwrite64", "pwrite"], Returns::Bytes),
    function("readv", &["readv"], Returns::Bytes),
    function("readv", &["preadv64", "preadv"], Returns::Bytes),
    function("readv", &["preadv64v2", "preadv2"], Returns::Bytes),
    function("writev", &["writev"], Returns::Bytes),
    function("writev", &["pwritev64", "pwritev"], Returns::Bytes),
    function("writev", &["pwritev64v2", "pwritev2"], Returns::Bytes),
    function("open", &["open64", "open"], Returns::Status),
    function("open", &["openat64", "openat"], Returns::Status),
    function("open", &["creat64", "creat"], Returns::Status),
    function("fsync", &["fsync"], Returns::Status),
    function("fsync", &["fdatasync"], Returns::Status),
    function("mkdir", &["mkdir"], Returns::Status),
    function("mkdir", &["mkdirat"], Returns::Status),
    function("unlink", &["unlink"], Returns::Status),
    function("unlinkat", &["unlinkat"], Returns::Status),
    function("rmdir", &["rmdir"], Returns::Status),
    function("rename", &["rename"], Returns::Status),
    function("rename", &["renameat"], Returns::Status),
    function("rename", &["renameat2"], Returns::Status),
];

/// Functions of MPI-IO (MPI 4.1, chapter 14) that return when the data have been moved. Entries
/// that end in `_at` belong to functions with an offset before the buffer. Names that end in `_c`
/// belong to functions with a count of 64 bits (MPI 4.0).
pub const MPI_IO: &[Function] = &[
    function("mpi_open", &["MPI_File_open"], Returns::Mpi),
    function("mpi_read", &["MPI_File_read"], Returns::Mpi),
    function("mpi_read", &["MPI_File_read_c"], Returns::Mpi),
    function("mpi_read", &["MPI_File_read_all"], Returns::Mpi),
    function("mpi_read", &["MPI_File_read_all_c"], Returns::Mpi),
    function("mpi_read", &["MPI_File_read_shared"], Returns::Mpi),
    function("mpi_read", &["MPI_File_read_shared_c"], Returns::Mpi),
    function("mpi_read", &["MPI_File_read_ordered"], Returns::Mpi),
    function("mpi_read", &["MPI_File_read_ordered_c"], Returns::Mpi),
    function("mpi_read_at", &["MPI_File_read_at"], Returns::Mpi),
    function("mpi_read_at", &["MPI_File_read_at_c"], Returns::Mpi),
    function("mpi_read_at", &["MPI_File_read_at_all"], Returns::Mpi),
    function("mpi_read_at", &["MPI_File_read_at_all_c"], Returns::Mpi),
    function("mpi_write", &["MPI_File_write"], Returns::Mpi),
    function("mpi_write", &["MPI_File_write_c"], Returns::Mpi),
    function("mpi_write", &["MPI_File_write_all"], Returns::Mpi),
    function("mpi_write", &["MPI_File_write_all_c"], Returns::Mpi),
    function("mpi_write", &["MPI_File_write_shared"], Returns::Mpi),
    function("mpi_write", &["MPI_File_write_shared_c"], Returns::Mpi),
    function("mpi_write", &["MPI_File_write_ordered"], Returns::Mpi),
    function("mpi_write", &["MPI_File_write_ordered_c"], Returns::Mpi),
    function("mpi_write_at", &["MPI_File_write_at"], Returns::Mpi),
    function("mpi_write_at", &["MPI_File_write_at_c"], Returns::Mpi),
    function("mpi_write_at", &["MPI_File_write_at_all"], Returns::Mpi),
    function("mpi_write_at", &["MPI_File_write_at_all_c"], Returns::Mpi),
];

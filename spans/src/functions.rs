// SPDX-License-Identifier: MIT OR Apache-2.0
//! The MPI-IO functions that are traced (MPI 4.1, chapter 14), and the meaning of their arguments.

/// The direction in which a function moves data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataDirection {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// The arguments of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `MPI_Init`, which is not part of MPI-IO: a process starts.
    Init,
    /// (communicator, name, mode, info, file)
    Open,
    /// (file), by its address
    Close,
    /// (file, …), without data
    Other,
    /// ([file], \[offset], buffer, count, datatype, …)
    Data {
        /// The direction of the data.
        direction: DataDirection,
        /// Whether an offset follows the file.
        at: bool,
        /// Whether all data are moved on return, and the last argument is a status.
        completes: bool,
    },
    /// (file, buffer, status): the data of the preceding call are moved on return.
    End(DataDirection),
}

/// A function of MPI-IO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MpiFunction {
    /// The MPI name.
    pub name: &'static str,
    /// The part of the name that the programs in src/bpf use.
    pub short: &'static str,
    /// The arguments.
    pub shape: Shape,
    /// Whether counts have 64 bits (MPI 4.0). Otherwise they are an `int`, and the upper half of
    /// the register is undefined.
    pub large_count: bool,
}

const fn plain(name: &'static str, short: &'static str, shape: Shape) -> MpiFunction {
    MpiFunction { name, short, shape, large_count: false }
}

macro_rules! table {
    ($($kind:ident($direction:ident): $($short:literal)*;)*) => {
        /// All functions, by number. The list in src/bpf/spans.bpf.c has the same order.
        pub const FUNCTIONS: &[MpiFunction] = &[
            plain("MPI_Init", "init", Shape::Init),
            plain("MPI_Init_thread", "init_thread", Shape::Init),
            plain("MPI_File_open", "open", Shape::Open),
            plain("MPI_File_close", "close", Shape::Close),
            plain("MPI_File_sync", "sync", Shape::Other),
            plain("MPI_File_set_size", "set_size", Shape::Other),
            plain("MPI_File_preallocate", "preallocate", Shape::Other),
            plain("MPI_File_set_view", "set_view", Shape::Other),
            plain("MPI_File_seek", "seek", Shape::Other),
            plain("MPI_File_seek_shared", "seek_shared", Shape::Other),
            plain("MPI_File_get_size", "get_size", Shape::Other),
            $($(MpiFunction {
                name: concat!("MPI_File_", $short),
                short: $short,
                shape: table!(@ $kind DataDirection::$direction),
                large_count: matches!($short.as_bytes(), [.., b'_', b'c']),
            },)*)*
        ];
    };
    (@ blocking $direction:expr) => { Shape::Data { direction: $direction, at: false, completes: true } };
    (@ blocking_at $direction:expr) => { Shape::Data { direction: $direction, at: true, completes: true } };
    (@ starts $direction:expr) => { Shape::Data { direction: $direction, at: false, completes: false } };
    (@ starts_at $direction:expr) => { Shape::Data { direction: $direction, at: true, completes: false } };
    (@ ends $direction:expr) => { Shape::End($direction) };
}

table! {
    blocking(Read): "read" "read_c" "read_all" "read_all_c" "read_shared" "read_shared_c" "read_ordered" "read_ordered_c";
    blocking_at(Read): "read_at" "read_at_c" "read_at_all" "read_at_all_c";
    blocking(Write): "write" "write_c" "write_all" "write_all_c" "write_shared" "write_shared_c" "write_ordered" "write_ordered_c";
    blocking_at(Write): "write_at" "write_at_c" "write_at_all" "write_at_all_c";
    starts(Read): "iread" "iread_c" "iread_all" "iread_all_c" "iread_shared" "iread_shared_c";
    starts_at(Read): "iread_at" "iread_at_c" "iread_at_all" "iread_at_all_c";
    starts(Write): "iwrite" "iwrite_c" "iwrite_all" "iwrite_all_c" "iwrite_shared" "iwrite_shared_c";
    starts_at(Write): "iwrite_at" "iwrite_at_c" "iwrite_at_all" "iwrite_at_all_c";
    starts(Read): "read_all_begin";
    ends(Read): "read_all_end";
    starts_at(Read): "read_at_all_begin";
    ends(Read): "read_at_all_end";
    starts(Read): "read_ordered_begin";
    ends(Read): "read_ordered_end";
    starts(Write): "write_all_begin";
    ends(Write): "write_all_end";
    starts_at(Write): "write_at_all_begin";
    ends(Write): "write_at_all_end";
    starts(Write): "write_ordered_begin";
    ends(Write): "write_ordered_end";
}

impl Shape {
    /// Returns the argument indices of the datatype and the status, if the function has them.
    #[must_use]
    pub const fn places(self) -> (Option<u8>, Option<u8>) {
        match self {
            Self::Data { at, completes, .. } => {
                let datatype = if at { 4 } else { 3 };
                (Some(datatype), if completes { Some(datatype + 1) } else { None })
            }
            Self::End(_) => (None, Some(2)),
            Self::Init | Self::Open | Self::Close | Self::Other => (None, None),
        }
    }
}

/// Returns the function with this number.
#[must_use]
pub fn by_number(number: u32) -> Option<&'static MpiFunction> {
    FUNCTIONS.get(usize::try_from(number).ok()?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_programs_have_the_same_list() {
        let source = include_str!("bpf/spans.bpf.c");
        let list = source.split("#define FUNCTIONS(X)").nth(1).unwrap().split("\n\n").next().unwrap();
        let number = |text: &str| if text == "NONE" { None } else { Some(text.parse::<u8>().unwrap()) };
        let listed: Vec<_> = list
            .lines()
            .filter_map(|line| line.trim().strip_prefix("X(")?.split(')').next())
            .map(|entry| {
                let parts: Vec<&str> = entry.split(", ").collect();
                (parts[0], number(parts[1]), number(parts[2]))
            })
            .collect();
        let ours: Vec<_> = FUNCTIONS
            .iter()
            .map(|function| {
                let (datatype, status) = function.shape.places();
                (function.short, datatype, status)
            })
            .collect();
        assert_eq!(listed, ours);
    }

    #[test]
    fn names_are_those_of_mpi_and_are_there_once() {
        let names: BTreeSet<&str> = FUNCTIONS.iter().map(|function| function.name).collect();
        assert_eq!(names.len(), FUNCTIONS.len());
        assert!(names.contains("MPI_File_write_at_all_c") && names.contains("MPI_File_iread_shared"));
        assert!(FUNCTIONS.iter().all(|function| function.large_count == function.name.ends_with("_c")));
        assert_eq!(by_number(2).unwrap().name, "MPI_File_open");
        assert_eq!(by_number(u32::MAX), None);
    }
}

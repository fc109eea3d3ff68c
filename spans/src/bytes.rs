// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes bytes from a call's arguments, by the library's layout of datatypes and status.

use crate::{event::CallEvent, functions::Shape};

/// A family of MPI implementations with the same layout of handles and `MPI_Status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// MPICH and libraries with its ABI (Intel MPI, MVAPICH, Cray MPICH).
    Mpich,
    /// Open MPI.
    OpenMpi,
}

impl Family {
    /// Name of the family in spans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mpich => "mpich",
            Self::OpenMpi => "open-mpi",
        }
    }
}

/// The source of a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteSource {
    /// The status that the library filled in: the bytes moved.
    Status,
    /// Count and datatype of a successful call whose caller ignores the status.
    Arguments,
}

impl ByteSource {
    /// Name of the source in spans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Arguments => "arguments",
        }
    }
}

/// The data of a call. A field is `None` if it is unknown or the function has no such value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Data {
    /// The caller's offset, in elements of the file's view, or in bytes without a view.
    pub offset: Option<i64>,
    /// Number of elements of the datatype.
    pub count: Option<i64>,
    /// Bytes that the caller asked for.
    pub requested: Option<u64>,
    /// Bytes that were moved, and the source of that number.
    pub moved: Option<(u64, ByteSource)>,
}

/// Returns the data of `call` to a library of `family`.
#[must_use]
pub fn data(call: &CallEvent, family: Family) -> Data {
    let status = call.status.and_then(|status| in_status(status, family)).map(|bytes| (bytes, ByteSource::Status));
    match call.function.shape {
        Shape::Data { at, completes, .. } => {
            let [_, second, third, fourth, fifth, _] = call.arguments;
            let (offset, count, datatype) =
                if at { (Some(second.cast_signed()), fourth, fifth) } else { (None, third, fourth) };
            let count = if call.function.large_count { count.cast_signed() } else { low_half(count) };
            let requested = element(datatype, call.type_size, family)
                .and_then(|size| size.checked_mul(u64::try_from(count).ok()?))
                .filter(|&bytes| i64::try_from(bytes).is_ok());
            let ignored = requested.filter(|_| call.status.is_none() && call.result == 0);
            let moved = status.or(ignored.map(|bytes| (bytes, ByteSource::Arguments))).filter(|_| completes);
            Data { offset, count: Some(count), requested, moved }
        }
        Shape::End(_) => Data { moved: status, ..Data::default() },
        Shape::Init | Shape::Open | Shape::Close | Shape::Other => Data::default(),
    }
}

/// Reads an `int` from a register.
pub(crate) fn low_half(register: u64) -> i64 {
    i64::from((register as u32).cast_signed())
}

/// Returns the bytes in a status. MPICH's status starts with the 32-bit `count_lo` and
/// `count_hi_and_cancelled` (src/include/mpi.h.in). Open MPI's has `_ucount` after four 32-bit
/// fields (`ompi_status_public_t`).
fn in_status(status: [u64; 3], family: Family) -> Option<u64> {
    let bytes = match family {
        Family::Mpich => {
            let (low, high) = (status[0] & 0xffff_ffff, status[0] >> 32);
            low | high >> 1 << 32
        }
        Family::OpenMpi => status[2],
    };
    // The number is negative if the library reports an undefined count.
    i64::try_from(bytes).is_ok().then_some(bytes)
}

/// Returns the size of an element. MPICH encodes it in handles of predefined datatypes, 0x4c00SSNN.
/// The size of derived ones is unknown.
fn element(datatype: u64, type_size: Option<u64>, family: Family) -> Option<u64> {
    match family {
        Family::Mpich => {
            let handle = datatype & 0xffff_ffff;
            (handle >> 24 == 0x4c).then_some(handle >> 8 & 0xff)
        }
        Family::OpenMpi => type_size,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        event::When,
        functions::{FUNCTIONS, MpiFunction},
    };

    fn function(name: &str) -> &'static MpiFunction {
        FUNCTIONS.iter().find(|function| function.short == name).unwrap()
    }

    fn call(name: &str, arguments: [u64; 6], status: Option<[u64; 3]>) -> CallEvent {
        CallEvent {
            function: function(name),
            when: When { process: 1, thread: 1, begin: 0, end: 0 },
            handle: Some(1),
            arguments,
            status,
            type_size: None,
            result: 0,
            library: 0,
            path: None,
        }
    }

    /// MPICH's handles of `MPI_BYTE` and `MPI_DOUBLE`.
    const BYTE: u64 = 0x4c00_010d;
    const DOUBLE: u64 = 0x4c00_080b;

    #[test]
    fn the_status_says_what_was_moved() {
        let of = |status: [u64; 3], family| data(&call("read_at", [1, 512, 2, 100, BYTE, 9], Some(status)), family);
        let found = of([60, 0, 0], Family::Mpich);
        assert_eq!((found.offset, found.count, found.requested), (Some(512), Some(100), Some(100)));
        assert_eq!(found.moved, Some((60, ByteSource::Status)));
        // The lowest bit of the upper half says whether the call was cancelled.
        assert_eq!(of([7 | 3 << 32, 0, 0], Family::Mpich).moved, Some((7 + (1 << 32), ByteSource::Status)));
        assert_eq!(of([0, 0, 60], Family::OpenMpi).moved, Some((60, ByteSource::Status)));
        assert_eq!(of([0, 0, u64::MAX], Family::OpenMpi).moved, None);
    }

    #[test]
    fn where_it_is_ignored_the_arguments_do() {
        let garbage = 0xdead_0000_0000_0000;
        let found = data(&call("write", [1, 2, 10 | garbage, DOUBLE | garbage, 1, 0], None), Family::Mpich);
        assert_eq!((found.offset, found.count), (None, Some(10)));
        assert_eq!((found.requested, found.moved), (Some(80), Some((80, ByteSource::Arguments))));
        let failed = CallEvent { result: 35, ..call("write", [1, 2, 10, DOUBLE, 1, 0], None) };
        assert_eq!(data(&failed, Family::Mpich).moved, None);
        // A derived datatype of MPICH.
        let derived = data(&call("write", [1, 2, 10, 0x8c00_0000, 1, 0], None), Family::Mpich);
        assert_eq!((derived.requested, derived.moved), (None, None));
        let large = CallEvent { type_size: Some(8), ..call("write_c", [1, 2, 1 << 40, 0x7f00_0000_0000, 0, 0], None) };
        assert_eq!(data(&large, Family::OpenMpi).moved, Some((1 << 43, ByteSource::Arguments)));
    }

    #[test]
    fn what_only_starts_has_moved_nothing_yet() {
        let begun = data(&call("iwrite_at", [1, 0, 2, 10, BYTE, 7], None), Family::Mpich);
        assert_eq!((begun.requested, begun.moved), (Some(10), None));
        let ended = data(&call("write_at_all_end", [1, 2, 3, 0, 0, 0], Some([10, 0, 0])), Family::Mpich);
        assert_eq!((ended.requested, ended.moved), (None, Some((10, ByteSource::Status))));
        assert_eq!(data(&call("sync", [1; 6], None), Family::Mpich), Data::default());
    }

    #[test]
    fn a_negative_count_asks_for_nothing() {
        let found = data(&call("read", [1, 2, 0xffff_ffff, BYTE, 9, 0], None), Family::Mpich);
        assert_eq!((found.count, found.requested, found.moved), (Some(-1), None, None));
    }

    proptest! {
        #[test]
        fn numbers_of_bytes_are_never_negative(number in 0..FUNCTIONS.len(), arguments: [u64; 6], status: Option<[u64; 3]>, type_size: Option<u64>, open: bool) {
            let call = CallEvent { function: &FUNCTIONS[number], type_size, ..call("read", arguments, status) };
            let found = data(&call, if open { Family::OpenMpi } else { Family::Mpich });
            for bytes in found.requested.into_iter().chain(found.moved.map(|(bytes, _)| bytes)) {
                prop_assert!(i64::try_from(bytes).is_ok());
            }
        }
    }
}

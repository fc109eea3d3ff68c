// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes the records of the ring buffer: the structures of src/bpf/spans.bpf.c.

use crate::functions::{MpiFunction, by_number};

/// Longest file name, in bytes, including the final zero.
const PATH_BYTES: usize = 1024;
const CALL_BYTES: usize = 136;
const OPEN_BYTES: usize = CALL_BYTES + PATH_BYTES;
const SYSTEM_CALL_BYTES: usize = 88;

const KIND_CALL: u32 = 1;
const KIND_OPEN: u32 = 2;
const KIND_SYSTEM_CALL: u32 = 3;

const READ_STATUS: u32 = 1;
const READ_TYPE_SIZE: u32 = 2;
const READ_HANDLE: u32 = 4;
const READ_PATH: u32 = 8;

/// The thread that did something, and the time in nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct When {
    /// The process id in the initial pid namespace.
    pub process: u32,
    /// The thread id.
    pub thread: u32,
    /// Start of the call.
    pub begin: u64,
    /// End of the call, never before the start.
    pub end: u64,
}

/// An MPI call that returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallEvent {
    /// The function.
    pub function: &'static MpiFunction,
    /// The calling thread, and the time.
    pub when: When,
    /// The library's handle of the file; `None` if it could not be read or there is none.
    pub handle: Option<u64>,
    /// The argument registers.
    pub arguments: [u64; 6],
    /// The first words of the caller's `MPI_Status`; `None` if the caller ignores it.
    pub status: Option<[u64; 3]>,
    /// The size of the datatype, read from Open MPI's structure.
    pub type_size: Option<u64>,
    /// The function's result: 0 or an error number.
    pub result: i32,
    /// The number of the library with the function.
    pub library: u32,
    /// The name of the opened file, and whether it is complete.
    pub path: Option<(Vec<u8>, bool)>,
}

/// The system calls that read and write, in the order of their numbers in records.
pub const SYSTEM_CALLS: [&str; 10] =
    ["read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "preadv2", "pwritev2"];

/// A system call that reads or writes within a call of MPI-IO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemCall {
    /// Name of the system call.
    pub name: &'static str,
    /// The calling thread, and the time.
    pub when: When,
    /// The file handle of the MPI call.
    pub handle: Option<u64>,
    /// The MPI function that was called.
    pub function: &'static MpiFunction,
    /// When the MPI call began.
    pub call_begin: u64,
    /// The inode number of the file.
    pub inode: u64,
    /// Major and minor number of the file system's device.
    pub device: (u32, u32),
    /// The offset of the data in the file.
    pub offset: Option<u64>,
    /// Bytes that were requested.
    pub requested: Option<u64>,
    /// Bytes that were moved, or a negative error number.
    pub result: i64,
}

/// A decoded record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanEvent {
    /// A call of MPI.
    Call(CallEvent),
    /// A system call that reads or writes.
    System(SystemCall),
}

/// Reads words from a record.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*word))
    }

    fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }
}

/// Decodes a record; `None` if no program writes such a record.
#[must_use]
pub fn decode(record: &[u8]) -> Option<SpanEvent> {
    let mut words = Words(record);
    match (words.u32()?, record.len()) {
        (KIND_CALL, CALL_BYTES) => call(words).map(SpanEvent::Call),
        (KIND_OPEN, OPEN_BYTES) => call(words).map(SpanEvent::Call),
        (KIND_SYSTEM_CALL, SYSTEM_CALL_BYTES) => system_call(words).map(SpanEvent::System),
        _ => None,
    }
}

fn when(process: u32, thread: u32, begin: u64, end: u64) -> Option<When> {
    (begin <= end).then_some(When { process, thread, begin, end })
}

fn call(mut words: Words<'_>) -> Option<CallEvent> {
    let function = by_number(words.u32()?)?;
    let when = when(words.u32()?, words.u32()?, words.u64()?, words.u64()?)?;
    let handle = words.u64()?;
    let mut next = || words.u64();
    let arguments = [next()?, next()?, next()?, next()?, next()?, next()?];
    let status = [next()?, next()?, next()?];
    let type_size = next()?;
    let result = words.u32()?.cast_signed();
    let read = words.u32()?;
    let library = words.u32()?;
    let path_bytes = usize::try_from(words.u32()?).ok()?;
    let path = if read & READ_PATH == 0 {
        None
    } else {
        let text = words.0.get(..path_bytes.checked_sub(1)?)?;
        // The content is not checked: it is text, not a file to open.
        Some((text.to_vec(), path_bytes < PATH_BYTES))
    };
    Some(CallEvent {
        function,
        when,
        handle: (read & READ_HANDLE != 0 && handle != 0).then_some(handle),
        arguments,
        status: (read & READ_STATUS != 0).then_some(status),
        type_size: (read & READ_TYPE_SIZE != 0).then_some(type_size),
        result,
        library,
        path,
    })
}

fn system_call(mut words: Words<'_>) -> Option<SystemCall> {
    let name = SYSTEM_CALLS.get(usize::try_from(words.u32()?).ok()?)?;
    let when = when(words.u32()?, words.u32()?, words.u64()?, words.u64()?)?;
    let handle = words.u64()?;
    let call_begin = words.u64()?;
    let inode = words.u64()?;
    let (offset, requested, result) =
        (words.u64()?.cast_signed(), words.u64()?.cast_signed(), words.u64()?.cast_signed());
    let device = words.u32()?;
    let function = by_number(words.u32()?)?;
    Some(SystemCall {
        name,
        when,
        handle: (handle != 0).then_some(handle),
        function,
        call_begin,
        inode,
        // MINORBITS of include/linux/kdev_t.h
        device: (device >> 20, device & 0xf_ffff),
        offset: u64::try_from(offset).ok(),
        requested: u64::try_from(requested).ok(),
        result,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A record of a call in the format of src/bpf/spans.bpf.c.
    pub(crate) fn call_record(kind: u32, function: &str, begin: u64, end: u64, read: u32, path: &[u8]) -> Vec<u8> {
        let number = crate::functions::FUNCTIONS.iter().position(|known| known.short == function).unwrap();
        let mut record = Vec::new();
        for word in [kind, u32::try_from(number).unwrap(), 70, 71] {
            record.extend(word.to_ne_bytes());
        }
        for word in [begin, end, 0xbeef, 0xbeef, 4096, 3, 100, 0x4c00_010d, 6, 25, 26, 27, 1] {
            record.extend(word.to_ne_bytes());
        }
        for word in [0, read, 0, u32::try_from(path.len()).unwrap()] {
            record.extend(word.to_ne_bytes());
        }
        if kind == KIND_OPEN {
            record.extend(path);
            record.resize(OPEN_BYTES, 0xaa);
        }
        record
    }

    pub(crate) fn system_record(operation: u32, function: u32, begin: u64, call_begin: u64, result: i64) -> Vec<u8> {
        let mut record = Vec::new();
        for word in [KIND_SYSTEM_CALL, operation, 70, 71] {
            record.extend(word.to_ne_bytes());
        }
        for word in [begin, begin + 10, 0xbeef, call_begin, 9, 4096, u64::MAX, result.cast_unsigned()] {
            record.extend(word.to_ne_bytes());
        }
        for word in [0x80_0001, function] {
            record.extend(word.to_ne_bytes());
        }
        record
    }

    #[test]
    fn a_call_has_its_arguments() {
        let Some(SpanEvent::Call(call)) = decode(&call_record(1, "read_at", 5, 9, 5, b"")) else { panic!() };
        assert_eq!((call.function.name, call.when.process, call.when.thread), ("MPI_File_read_at", 70, 71));
        assert_eq!((call.when.begin, call.when.end, call.handle), (5, 9, Some(0xbeef)));
        assert_eq!((call.arguments[1], call.arguments[5]), (4096, 6));
        assert_eq!((call.status, call.type_size, call.path), (Some([25, 26, 27]), None, None));
    }

    #[test]
    fn an_opened_file_has_a_name() {
        let path = |path: &[u8]| match decode(&call_record(2, "open", 5, 9, 12, path)) {
            Some(SpanEvent::Call(call)) => call.path,
            other => panic!("{other:?}"),
        };
        assert_eq!(path(b"/scratch/a\0"), Some((b"/scratch/a".to_vec(), true)));
        assert_eq!(path(b"\0"), Some((Vec::new(), true)));
        let long = vec![b'x'; PATH_BYTES];
        assert_eq!(path(&long), Some((vec![b'x'; PATH_BYTES - 1], false)));
    }

    #[test]
    fn a_system_call_names_the_call_around_it() {
        let Some(SpanEvent::System(call)) = decode(&system_record(3, 12, 6, 5, -5)) else { panic!() };
        assert_eq!((call.name, call.function.short, call.call_begin), ("pwrite64", "read_c", 5));
        assert_eq!((call.device, call.offset, call.requested, call.result), ((8, 1), Some(4096), None, -5));
    }

    #[test]
    fn records_that_no_program_writes_are_refused() {
        let good = call_record(1, "read_at", 5, 9, 5, b"");
        assert!(decode(&good).is_some());
        assert_eq!(decode(&good[..good.len() - 1]), None);
        assert_eq!(decode(&[&good[..], &[0]].concat()), None);
        assert_eq!(decode(&call_record(1, "read_at", 9, 5, 5, b"")), None, "it ends before it begins");
        assert_eq!(decode(&call_record(2, "open", 5, 9, 8, b"")), None, "a text without its end");
        let mut unknown = good.clone();
        unknown[4] = 200;
        assert_eq!(decode(&unknown), None);
        assert_eq!(decode(&system_record(10, 0, 6, 5, 0)), None);
        assert_eq!(decode(b""), None);
    }

    proptest! {
        #[test]
        fn no_record_makes_it_panic(kind in 0..5u32, rest: Vec<u8>, size in prop_oneof![Just(CALL_BYTES), Just(OPEN_BYTES), Just(SYSTEM_CALL_BYTES), 0..2000usize]) {
            let mut record = kind.to_ne_bytes().to_vec();
            record.extend(rest);
            record.resize(size, 0xff);
            if let Some(SpanEvent::Call(call)) = decode(&record) {
                prop_assert!(call.path.is_none_or(|(path, _)| path.len() < PATH_BYTES));
                prop_assert!(call.when.begin <= call.when.end);
            }
        }
    }
}

#[cfg(test)]
mod sources {
    /// The number of each system call in src/bpf equals its index in this list.
    #[test]
    fn system_calls_are_those_of_the_programs() {
        let source = include_str!("bpf/spans.bpf.c");
        let listed: Vec<(usize, &str)> = source
            .lines()
            .filter_map(|line| {
                let mut parts = line.strip_prefix("SYSTEM_CALL(")?.split(", ");
                Some((parts.next()?.parse().unwrap(), parts.next()?))
            })
            .collect();
        assert_eq!(listed, super::SYSTEM_CALLS.iter().copied().enumerate().collect::<Vec<_>>());
    }
}

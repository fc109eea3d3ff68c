// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links, which attach programs.

use std::{
    ffi::CStr,
    io,
    os::fd::{BorrowedFd, OwnedFd},
    ptr,
};

use crate::{
    object::ObjectInfo,
    syscall::{BpfCommand, number, open},
};

/// `BPF_LINK_TYPE_PERF_EVENT`, `BPF_LINK_TYPE_KPROBE_MULTI`.
const PERF_EVENT: u32 = 7;
const KPROBE_MULTI: u32 = 8;
/// `BPF_PERF_EVENT_KPROBE`, `BPF_PERF_EVENT_KRETPROBE`, `BPF_PERF_EVENT_TRACEPOINT`.
const KPROBE: u32 = 3;
const KRETPROBE: u32 = 4;
const TRACEPOINT: u32 = 5;
/// Size of `struct bpf_link_info` in bytes in kernels that count missed hits (Linux 6.7 and later).
const BYTES_WITH_MISSED: usize = 56;

/// Information on a link (`struct bpf_link_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkInfo {
    /// The link's type.
    pub kind: u32,
    /// Whether this kernel counts missed hits.
    pub counts_misses: bool,
    /// Whether the link is of a tracepoint's perf event, which itself misses no hits.
    pub is_tracepoint: bool,
    /// Hits of a kprobe, kretprobe or multi link that ran no program; `None` for other links.
    pub missed: Option<u64>,
}

/// Asks the kernel about a link.
///
/// # Errors
/// The kernel's error; `EINVAL` or `EOPNOTSUPP` for a perf event, as which kprobes are attached
/// before Linux 5.15.
pub fn link_info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    ObjectInfo::of(link).map(|info| parse(&info))
}

fn parse(info: &ObjectInfo) -> LinkInfo {
    let (kind, event) = (info.half(0), info.half(16));
    let counts_misses = info.length >= BYTES_WITH_MISSED;
    let missed = match (kind, event) {
        (KPROBE_MULTI, _) => Some(info.whole(32)),
        (PERF_EVENT, KPROBE | KRETPROBE) => Some(info.whole(48)),
        _ => None,
    };
    LinkInfo {
        kind,
        counts_misses,
        is_tracepoint: kind == PERF_EVENT && event == TRACEPOINT,
        missed: missed.filter(|_| counts_misses),
    }
}

/// The target of a link, apart from a descriptor that it can name.
#[derive(Debug, Clone, Copy)]
pub enum LinkTarget<'a> {
    /// The target that the program itself names, or an iterator.
    Program,
    /// The function that a tracing program itself names, and a number for the program.
    Tracing {
        /// The number.
        cookie: u64,
    },
    /// A perf event, and a number for the program.
    PerfEvent {
        /// The event.
        event: BorrowedFd<'a>,
        /// The number, or 0 for none, which every kernel with such links accepts (5.15 and later).
        cookie: u64,
    },
    /// Kernel functions, through fprobe. The number of each is its position in the list, from 1.
    KprobeMulti(&'a [&'a CStr]),
    /// An offset in a file.
    UprobeMulti {
        /// The path of the file.
        path: &'a CStr,
        /// The offset in bytes.
        offset: u64,
    },
}

/// Creates a link of `program`. `attach` is the `enum bpf_attach_type`.
///
/// # Errors
/// The kernel's error if it refuses the link: the program's type does not fit `attach`, the target
/// does not exist or cannot be hooked, or `CAP_BPF` or `CAP_PERFMON` is missing. `InvalidInput` if
/// the number of functions does not fit into a `u32`.
pub fn link_create(program: BorrowedFd<'_>, attach: u32, target: LinkTarget<'_>) -> io::Result<OwnedFd> {
    /// The part of `union bpf_attr` for this command. The last six words are a union by
    /// `attach_type`.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        program: u32,
        target: u32,
        attach_type: u32,
        flags: u32,
        rest: [u64; 6],
    }
    let mut attributes = Attributes { program: number(program), attach_type: attach, ..Attributes::default() };
    let (symbols, cookies, offsets): (Vec<*const libc::c_char>, Vec<u64>, [u64; 1]);
    match target {
        LinkTarget::Program => {}
        LinkTarget::Tracing { cookie } => attributes.rest[1] = cookie,
        LinkTarget::PerfEvent { event, cookie } => {
            (attributes.target, attributes.rest[0]) = (number(event), cookie);
        }
        LinkTarget::KprobeMulti(names) => {
            symbols = names.iter().map(|name| name.as_ptr()).collect();
            cookies = (1..=names.len() as u64).collect();
            // Flags are in the lower half, which comes first on little-endian machines. The number
            // of functions follows.
            let count = u32::try_from(names.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
            let [a, b, c, d] = count.to_ne_bytes();
            attributes.rest[0] = u64::from_ne_bytes([0, 0, 0, 0, a, b, c, d]);
            attributes.rest[1] = symbols.as_ptr() as u64;
            attributes.rest[3] = cookies.as_ptr() as u64;
        }
        LinkTarget::UprobeMulti { path, offset } => {
            offsets = [offset];
            attributes.rest[0] = path.as_ptr() as u64;
            attributes.rest[1] = offsets.as_ptr() as u64;
            // One offset, no flags.
            let [a, b, c, d] = 1u32.to_ne_bytes();
            attributes.rest[4] = u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]);
        }
    }
    // SAFETY: the addresses are of strings and lists that outlive the call, with their lengths. The
    // command returns a new descriptor.
    unsafe { open(BpfCommand::LinkCreate, &mut attributes) }
}

/// Attaches a raw tracepoint, or, without a `name`, a tracing program that names its target.
///
/// # Errors
/// The kernel's error if there is no such tracepoint, or the program cannot be attached to it.
pub fn raw_tracepoint(program: BorrowedFd<'_>, name: Option<&CStr>) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        name: u64,
        program: u32,
        unused: u32,
    }
    let name = name.map_or(ptr::null(), CStr::as_ptr) as u64;
    // SAFETY: the name is null or outlives the call. The command returns a new descriptor.
    unsafe { open(BpfCommand::RawTracepointOpen, &mut Attributes { name, program: number(program), unused: 0 }) }
}

/// Opens the iterator of `link` for reading.
///
/// # Errors
/// The kernel's error if `link` is not a link of an iterator, or no descriptor is left.
pub fn iterator(link: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // The attributes are link and flags.
    // SAFETY: there are no addresses, and the command returns a new descriptor.
    unsafe { open(BpfCommand::IterCreate, &mut [number(link), 0]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_hits_are_read_where_the_kernel_writes_them() {
        let of = |kind: u32, event: u32, length| {
            let (kind, event) = (kind.to_ne_bytes(), event.to_ne_bytes());
            let hits = [12u64.to_ne_bytes(), 3u64.to_ne_bytes()];
            parse(&ObjectInfo::from_parts(&[(0, &kind), (16, &event), (48, &hits[0]), (32, &hits[1])], length))
        };
        assert_eq!(of(PERF_EVENT, KPROBE, 56).missed, Some(12));
        assert_eq!(of(KPROBE_MULTI, 0, 56).missed, Some(3));
        let tracepoint = of(PERF_EVENT, TRACEPOINT, 56);
        assert_eq!((tracepoint.missed, tracepoint.is_tracepoint), (None, true));
        let older = of(PERF_EVENT, KPROBE, 48);
        assert_eq!((older.missed, older.counts_misses), (None, false));
    }
}

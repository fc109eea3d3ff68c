//! The BPF programs, maps and links that the kernel holds, by the system call itself: which there are, what they are called,
//! and how long programs ran.

use std::{
    collections::BTreeSet,
    fs, io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use bpfassay_protocol::{tool::BpfObject, tracer::ProgramStatistics};

use crate::error::{Error, Result};

/// Commands of `bpf(2)` (include/uapi/linux/bpf.h).
const PROG_GET_NEXT_ID: libc::c_long = 11;
const MAP_GET_NEXT_ID: libc::c_long = 12;
const PROG_GET_FD_BY_ID: libc::c_long = 13;
const MAP_GET_FD_BY_ID: libc::c_long = 14;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const LINK_GET_FD_BY_ID: libc::c_long = 30;
const LINK_GET_NEXT_ID: libc::c_long = 31;
const ENABLE_STATS: libc::c_long = 32;

/// `BPF_STATS_RUN_TIME`.
const RUN_TIME: u32 = 0;

/// Where `struct bpf_prog_info` has what is read of it. It is part of the kernel's interface and only grows at its end;
/// a kernel that knows less (5.0 and older) says so by the length that it returns.
mod info {
    pub(super) const KIND: usize = 0;
    pub(super) const ID: usize = 4;
    pub(super) const NAME: usize = 64;
    /// Of `struct bpf_map_info`.
    pub(super) const MAP_NAME: usize = 24;
    pub(super) const NAME_BYTES: usize = 16;
    pub(super) const RUN_TIME_NS: usize = 192;
    pub(super) const RUN_COUNT: usize = 200;
    /// As many bytes as a kernel fills in that keeps statistics.
    pub(super) const STATISTICS_BYTES: usize = 208;
    /// Linux 5.12 and later.
    pub(super) const RECURSION_MISSES: usize = 208;
    pub(super) const BYTES: usize = 216;
}

/// Where `struct bpf_link_info` has what is read of it (include/uapi/linux/bpf.h, 6.12).
mod link {
    pub(super) const KIND: usize = 0;
    /// `BPF_LINK_TYPE_PERF_EVENT`.
    pub(super) const PERF_EVENT: u32 = 7;
    /// What kind of perf event it is.
    pub(super) const EVENT: usize = 16;
    /// `BPF_PERF_EVENT_KPROBE`, and for the return.
    pub(super) const EVENTS: [u32; 2] = [3, 4];
    pub(super) const EVENT_MISSED: usize = 48;
    /// `BPF_LINK_TYPE_KPROBE_MULTI`.
    pub(super) const KPROBE_MULTI: u32 = 8;
    pub(super) const MULTI_MISSED: usize = 32;
    /// As many bytes as a kernel fills in that counts missed hits (6.7 and later).
    pub(super) const BYTES_WITH_MISSED: usize = 56;
}

/// Does a command whose attributes are `attributes`: what it returns.
fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes within the attributes, whose size goes with them, and at addresses in them, which
    // the callers below take from buffers of the length that stands beside.
    let status = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    // Descriptors and zero fit.
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(status as i32) }
}

/// What the kernel numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Programs.
    Program,
    /// Maps.
    Map,
    /// Links (Linux 5.8 and later).
    Link,
}

/// Ids of all objects of this kind.
///
/// # Errors
/// The kernel's error.
pub(crate) fn ids(kind: Kind) -> Result<BTreeSet<u32>> {
    /// The part of `union bpf_attr` for walking over ids.
    #[repr(C)]
    struct Walk {
        start_id: u32,
        next_id: u32,
        open_flags: u32,
    }
    let command = match kind {
        Kind::Program => PROG_GET_NEXT_ID,
        Kind::Map => MAP_GET_NEXT_ID,
        Kind::Link => LINK_GET_NEXT_ID,
    };
    let mut walk = Walk { start_id: 0, next_id: 0, open_flags: 0 };
    let mut ids = BTreeSet::new();
    loop {
        match bpf(command, &mut walk) {
            Ok(_) => {
                ids.insert(walk.next_id);
                walk.start_id = walk.next_id;
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(ids),
            Err(error) => return Err(Error::system("list BPF objects")(error)),
        }
    }
}

/// Ids of all links; `None` where the kernel does not list them (before Linux 5.8).
///
/// # Errors
/// The kernel's error.
pub(crate) fn links() -> Result<Option<BTreeSet<u32>>> {
    match ids(Kind::Link) {
        Ok(ids) => Ok(Some(ids)),
        // A command that the kernel does not know.
        Err(Error::System { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The object of this kind with this id; `None` where it is gone.
fn open(kind: Kind, id: u32) -> Result<Option<OwnedFd>> {
    let command = match kind {
        Kind::Program => PROG_GET_FD_BY_ID,
        Kind::Map => MAP_GET_FD_BY_ID,
        Kind::Link => LINK_GET_FD_BY_ID,
    };
    // Id, `next_id`, flags.
    match bpf(command, &mut [id, 0, 0]) {
        // SAFETY: the kernel just made the descriptor, and nobody else owns it.
        Ok(fd) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(Error::system("open a BPF object")(error)),
    }
}

/// The programs or maps with these ids, those left out that are gone.
///
/// # Errors
/// The kernel's error.
pub(crate) fn objects(kind: Kind, ids: impl IntoIterator<Item = u32>) -> Result<Vec<BpfObject>> {
    let mut objects = Vec::new();
    for id in ids {
        let Some(fd) = open(kind, id)? else { continue };
        let (answer, _) = ask(&fd).map_err(Error::system("ask about a BPF object"))?;
        let name = if kind == Kind::Map { info::MAP_NAME } else { info::NAME };
        let memory = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok();
        objects.push(BpfObject {
            id: half(&answer, info::ID),
            name: text(&answer, name),
            kind: half(&answer, info::KIND),
            memory_bytes: memory.as_deref().and_then(memlock),
        });
    }
    Ok(objects)
}

/// The line `memlock:` of a program's or map's `fdinfo`.
pub(crate) fn memlock(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok())
}

/// Has the kernel keep statistics of every program (Linux 5.8 and later), for as long as the descriptor is open.
///
/// # Errors
/// The kernel's error.
pub(crate) fn enable_statistics() -> Result<OwnedFd> {
    let fd = bpf(ENABLE_STATS, &mut [RUN_TIME]).map_err(Error::system("switch on statistics of BPF programs"))?;
    // SAFETY: the kernel just made the descriptor, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The statistics of the programs with these ids, those left out that are gone.
///
/// # Errors
/// The kernel's error.
pub(crate) fn statistics(ids: impl IntoIterator<Item = u32>) -> Result<Vec<ProgramStatistics>> {
    let mut all = Vec::new();
    for id in ids {
        let Some(program) = open(Kind::Program, id)? else { continue };
        all.push(statistics_of(&program).map_err(Error::system("ask about a BPF program"))?);
    }
    Ok(all)
}

/// How often the kernel skipped the programs with these ids because they were running on that CPU already; `None` where it does
/// not tell (before Linux 5.12).
///
/// # Errors
/// The kernel's error.
pub(crate) fn recursion_misses(ids: impl IntoIterator<Item = u32>) -> Result<Option<u64>> {
    let mut misses = 0u64;
    for id in ids {
        let Some(program) = open(Kind::Program, id)? else { continue };
        let (answer, length) = ask(&program).map_err(Error::system("ask about a BPF program"))?;
        if length < info::BYTES {
            return Ok(None);
        }
        misses = misses.saturating_add(whole(&answer, info::RECURSION_MISSES));
    }
    Ok(Some(misses))
}

/// How many hits of kprobes ran no program, by the links with these ids; `None` where none of them is a kprobe's, or the kernel does
/// not count them (before Linux 6.7).
///
/// # Errors
/// The kernel's error.
pub(crate) fn missed_probes(ids: impl IntoIterator<Item = u32>) -> Result<Option<u64>> {
    let mut missed = None;
    for id in ids {
        let Some(link) = open(Kind::Link, id)? else { continue };
        let (answer, length) = ask(&link).map_err(Error::system("ask about a BPF link"))?;
        if length < link::BYTES_WITH_MISSED {
            return Ok(None);
        }
        if let Some(hits) = missed_of(&answer) {
            missed = Some(missed.unwrap_or(0_u64).saturating_add(hits));
        }
    }
    Ok(missed)
}

/// The missed hits in a link's information; `None` where it is no kprobe's.
fn missed_of(answer: &[u8; info::BYTES]) -> Option<u64> {
    match half(answer, link::KIND) {
        link::PERF_EVENT if link::EVENTS.contains(&half(answer, link::EVENT)) => {
            Some(whole(answer, link::EVENT_MISSED))
        }
        link::KPROBE_MULTI => Some(whole(answer, link::MULTI_MISSED)),
        _ => None,
    }
}

fn statistics_of(program: &OwnedFd) -> io::Result<ProgramStatistics> {
    let (answer, length) = ask(program)?;
    if length < info::STATISTICS_BYTES {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel keeps no statistics of BPF programs"));
    }
    Ok(read(&answer))
}

/// What the kernel tells of a program or map, and how many bytes that is; the others stay 0.
fn ask(object: &OwnedFd) -> io::Result<([u8; info::BYTES], usize)> {
    /// The part of `union bpf_attr` for questions about an object.
    #[repr(C)]
    struct Question {
        fd: u32,
        length: u32,
        address: u64,
    }
    let mut answer = [0u8; info::BYTES];
    let mut question = Question {
        fd: object.as_raw_fd().cast_unsigned(),
        length: info::BYTES as u32,
        address: answer.as_mut_ptr() as u64,
    };
    bpf(OBJ_GET_INFO_BY_FD, &mut question)?;
    Ok((answer, question.length as usize))
}

fn read(answer: &[u8; info::BYTES]) -> ProgramStatistics {
    ProgramStatistics {
        program: text(answer, info::NAME),
        runs: whole(answer, info::RUN_COUNT),
        run_time_ns: whole(answer, info::RUN_TIME_NS),
    }
}

fn whole(answer: &[u8; info::BYTES], offset: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&answer[offset..offset + 8]);
    u64::from_ne_bytes(bytes)
}

fn half(answer: &[u8; info::BYTES], offset: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&answer[offset..offset + 4]);
    u32::from_ne_bytes(bytes)
}

fn text(answer: &[u8; info::BYTES], offset: usize) -> String {
    let name = answer[offset..][..info::NAME_BYTES].split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_read_where_the_kernel_writes_them() {
        let mut answer = [0xff; info::BYTES];
        answer[64..74].copy_from_slice(b"read_exit\0");
        answer[192..200].copy_from_slice(&1234u64.to_ne_bytes());
        answer[200..208].copy_from_slice(&7u64.to_ne_bytes());
        let expected = ProgramStatistics { program: "read_exit".to_owned(), runs: 7, run_time_ns: 1234 };
        assert_eq!(read(&answer), expected);
    }

    #[test]
    fn names_and_kinds_are_read_where_the_kernel_writes_them() {
        let mut answer = [0; info::BYTES];
        answer[..4].copy_from_slice(&5u32.to_ne_bytes());
        answer[4..8].copy_from_slice(&77u32.to_ne_bytes());
        answer[24..30].copy_from_slice(b"counts");
        assert_eq!((half(&answer, info::KIND), half(&answer, info::ID)), (5, 77));
        assert_eq!(text(&answer, info::MAP_NAME), "counts");
    }

    #[test]
    fn missed_hits_are_read_where_the_kernel_writes_them() {
        let mut answer = [0; info::BYTES];
        answer[..4].copy_from_slice(&7u32.to_ne_bytes());
        answer[16..20].copy_from_slice(&3u32.to_ne_bytes());
        answer[48..56].copy_from_slice(&12u64.to_ne_bytes());
        assert_eq!(missed_of(&answer), Some(12));
        // The hits of a tracepoint's event are not counted.
        answer[16..20].copy_from_slice(&5u32.to_ne_bytes());
        assert_eq!(missed_of(&answer), None);
        answer[..4].copy_from_slice(&8u32.to_ne_bytes());
        answer[32..40].copy_from_slice(&3u64.to_ne_bytes());
        assert_eq!(missed_of(&answer), Some(3));
    }

    #[test]
    fn memory_is_read_from_fdinfo() {
        assert_eq!(memlock("pos:\t0\nmap_type:\t1\nmemlock:\t81920\nmap_id:\t3\n"), Some(81_920));
        assert_eq!(memlock("memlock:\tmuch\n"), None);
    }
}

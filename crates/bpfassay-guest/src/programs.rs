//! The BPF programs that the kernel holds, by the system call itself: which there are, and how long they ran.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use bpfassay_protocol::tracer::ProgramStatistics;

use crate::error::{Error, Result};

/// Commands of `bpf(2)` (include/uapi/linux/bpf.h).
const PROG_GET_NEXT_ID: libc::c_long = 11;
const PROG_GET_FD_BY_ID: libc::c_long = 13;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const ENABLE_STATS: libc::c_long = 32;

/// `BPF_STATS_RUN_TIME`.
const RUN_TIME: u32 = 0;

/// Where `struct bpf_prog_info` has what is read of it. It is part of the kernel's interface and only grows at its end;
/// a kernel that knows less (5.0 and older) says so by the length that it returns.
mod info {
    pub(super) const NAME: usize = 64;
    pub(super) const NAME_BYTES: usize = 16;
    pub(super) const RUN_TIME_NS: usize = 192;
    pub(super) const RUN_COUNT: usize = 200;
    pub(super) const BYTES: usize = 208;
}

/// Does a command whose attributes are `attributes`: what it returns.
fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes within the attributes, whose size goes with them, and at addresses in them, which
    // the callers below take from buffers of the length that stands beside.
    let status = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    // Descriptors and zero fit.
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(status as i32) }
}

/// Ids of all programs.
///
/// # Errors
/// The kernel's error.
pub(crate) fn loaded() -> Result<BTreeSet<u32>> {
    /// The part of `union bpf_attr` for walking over ids.
    #[repr(C)]
    struct Walk {
        start_id: u32,
        next_id: u32,
        open_flags: u32,
    }
    let mut walk = Walk { start_id: 0, next_id: 0, open_flags: 0 };
    let mut ids = BTreeSet::new();
    loop {
        match bpf(PROG_GET_NEXT_ID, &mut walk) {
            Ok(_) => {
                ids.insert(walk.next_id);
                walk.start_id = walk.next_id;
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(ids),
            Err(error) => return Err(Error::system("list BPF programs")(error)),
        }
    }
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
        // Id, `next_id`, flags.
        let program = match bpf(PROG_GET_FD_BY_ID, &mut [id, 0, 0]) {
            // SAFETY: the kernel just made the descriptor, and nobody else owns it.
            Ok(fd) => unsafe { OwnedFd::from_raw_fd(fd) },
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => continue,
            Err(error) => return Err(Error::system("open a BPF program")(error)),
        };
        all.push(statistics_of(&program).map_err(Error::system("ask about a BPF program"))?);
    }
    Ok(all)
}

fn statistics_of(program: &OwnedFd) -> io::Result<ProgramStatistics> {
    /// The part of `union bpf_attr` for questions about an object.
    #[repr(C)]
    struct Question {
        fd: u32,
        length: u32,
        address: u64,
    }
    let mut answer = [0u8; info::BYTES];
    let mut question = Question {
        fd: program.as_raw_fd().cast_unsigned(),
        length: info::BYTES as u32,
        address: answer.as_mut_ptr() as u64,
    };
    bpf(OBJ_GET_INFO_BY_FD, &mut question)?;
    if (question.length as usize) < info::BYTES {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel keeps no statistics of BPF programs"));
    }
    Ok(read(&answer))
}

fn read(answer: &[u8; info::BYTES]) -> ProgramStatistics {
    let number = |offset: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&answer[offset..offset + 8]);
        u64::from_ne_bytes(bytes)
    };
    let name = answer[info::NAME..][..info::NAME_BYTES].split(|&byte| byte == 0).next().unwrap_or_default();
    ProgramStatistics {
        program: String::from_utf8_lossy(name).into_owned(),
        runs: number(info::RUN_COUNT),
        run_time_ns: number(info::RUN_TIME_NS),
    }
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
}

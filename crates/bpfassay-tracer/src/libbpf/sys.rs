//! Calls into libbpf where libbpf-rs hides the kernel's error number or lacks an option. All that is unsafe is here.

use std::{
    ffi::CStr,
    io,
    mem::{offset_of, size_of},
    os::fd::{AsRawFd as _, BorrowedFd},
    ptr::NonNull,
};

use libbpf_rs::{AsRawLibbpf as _, Link, Object, OpenObject, ProgramMut};
use libbpf_sys::{bpf_kprobe_opts, bpf_link, bpf_link_info, bpf_prog_info, probe_attach_mode};

/// Creates the maps and loads the programs of `open`.
///
/// # Errors
/// The kernel's error, or libbpf's in the same numbers.
pub(super) fn load(open: OpenObject) -> io::Result<Object> {
    // SAFETY: `open` owns a valid object that is open and not loaded.
    let status = unsafe { libbpf_sys::bpf_object__load(open.as_libbpf_object().as_ptr()) };
    if status < 0 {
        return Err(io::Error::from_raw_os_error(-status));
    }
    // SAFETY: the object is loaded now, and `take_ptr` gives up the only ownership of it.
    Ok(unsafe { Object::from_ptr(open.take_ptr()) })
}

/// How a kprobe is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KprobeMode {
    /// By the perf event source `kprobe`: nothing is left behind when the process dies, nothing needs tracefs.
    Perf,
    /// By a line in tracefs' `kprobe_events`: the way before 4.17, which counts misses in `kprobe_profile`. A process
    /// that is killed leaves the line behind, without effect on anything but that file.
    Tracefs,
}

/// Attaches `program` as a kprobe to `function` + `offset`.
///
/// # Errors
/// The kernel's error.
pub(super) fn attach_kprobe(
    program: &ProgramMut<'_>,
    function: &CStr,
    offset: usize,
    mode: KprobeMode,
) -> io::Result<Link> {
    let mode: probe_attach_mode = match mode {
        KprobeMode::Perf => libbpf_sys::PROBE_ATTACH_MODE_DEFAULT,
        KprobeMode::Tracefs => libbpf_sys::PROBE_ATTACH_MODE_LEGACY,
    };
    let options = bpf_kprobe_opts {
        sz: size_of::<bpf_kprobe_opts>() as libbpf_sys::size_t,
        offset: offset as libbpf_sys::size_t,
        attach_mode: mode,
        ..Default::default()
    };
    // SAFETY: `program` belongs to a loaded object; the name and the options outlive the call.
    let link = unsafe {
        libbpf_sys::bpf_program__attach_kprobe_opts(program.as_libbpf_object().as_ptr(), function.as_ptr(), &options)
    };
    own(link)
}

/// Attaches `program` to what its section names.
///
/// # Errors
/// The kernel's error.
pub(super) fn attach(program: &ProgramMut<'_>) -> io::Result<Link> {
    // SAFETY: `program` belongs to a loaded object.
    own(unsafe { libbpf_sys::bpf_program__attach(program.as_libbpf_object().as_ptr()) })
}

/// Takes ownership of a link that libbpf just returned.
fn own(link: *mut bpf_link) -> io::Result<Link> {
    // libbpf sets errno whenever it returns a null pointer; nothing may come in between.
    let error = io::Error::last_os_error();
    // SAFETY: the link is valid, and nobody else owns it.
    NonNull::new(link).map(|link| unsafe { Link::from_ptr(link) }).ok_or(error)
}

/// What the kernel tells of a loaded program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProgramInfo {
    pub(super) jited_bytes: u32,
    pub(super) instructions: u32,
    pub(super) verified_instructions: Option<u32>,
    pub(super) recursion_misses: Option<u64>,
}

/// Asks the kernel about a program.
///
/// # Errors
/// The kernel's error.
pub(super) fn program_info(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    let mut info = bpf_prog_info::default();
    // SAFETY: all bytes of `bpf_prog_info` may be written by the kernel; null pointers in it ask for lengths only.
    let known = unsafe { object_info(program, &mut info)? };
    let has = |offset: usize, size: usize| offset + size <= known;
    Ok(ProgramInfo {
        jited_bytes: info.jited_prog_len,
        instructions: info.xlated_prog_len / 8,
        verified_instructions: has(offset_of!(bpf_prog_info, verified_insns), 4).then_some(info.verified_insns),
        recursion_misses: has(offset_of!(bpf_prog_info, recursion_misses), 8).then_some(info.recursion_misses),
    })
}

/// Hits of a kprobe link that ran no handler, where the kernel tells (6.7 and later).
///
/// # Errors
/// The kernel's error.
pub(super) fn kprobe_missed(link: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    /// From the beginning of `bpf_link_info`: `type`, `id`, `prog_id` and padding; then in `perf_event`: `type` and
    /// padding, `func_name`, `name_len`, `offset`, `addr`, and `missed`, which ends here.
    const MISSED_ENDS: usize = 16 + 8 + 8 + 4 + 4 + 8 + 8;
    let mut info = bpf_link_info::default();
    // SAFETY: all bytes of `bpf_link_info` may be written by the kernel; null pointers in it ask for lengths only.
    let known = match unsafe { object_info(link, &mut info) } {
        Ok(known) => known,
        // Before 5.15 a kprobe is a perf event, not a link, and there is no information about it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => return Ok(None),
        Err(error) => return Err(error),
    };
    if info.type_ != libbpf_sys::BPF_LINK_TYPE_PERF_EVENT || known < MISSED_ENDS {
        return Ok(None);
    }
    // SAFETY: the kernel filled in the member for this type of link; any bytes are valid integers.
    unsafe {
        let event = info.__bindgen_anon_1.perf_event;
        Ok((event.type_ == libbpf_sys::BPF_PERF_EVENT_KPROBE).then_some(event.__bindgen_anon_1.kprobe.missed))
    }
}

/// Fills `info` and returns how many bytes of it this kernel knows.
///
/// # Safety
/// Any bytes must make a valid `T`, and pointers in it must be null or valid for the lengths beside them.
unsafe fn object_info<T>(object: BorrowedFd<'_>, info: &mut T) -> io::Result<usize> {
    let mut length = size_of::<T>() as u32;
    // SAFETY: the kernel writes at most `length` bytes to `info`; the caller vouches for the rest.
    let status =
        unsafe { libbpf_sys::bpf_obj_get_info_by_fd(object.as_raw_fd(), (info as *mut T).cast(), &mut length) };
    if status < 0 { Err(io::Error::from_raw_os_error(-status)) } else { Ok(length as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missed_count_lies_where_the_length_check_assumes() {
        let mut info = bpf_link_info::default();
        let start = &raw const info as usize;
        // SAFETY: only addresses are taken.
        let missed = unsafe { &raw mut info.__bindgen_anon_1.perf_event.__bindgen_anon_1.kprobe.missed as usize };
        assert_eq!(missed - start + 8, 56);
    }
}

//! Attaching: links, and perf events with programs.

use std::{
    ffi::CStr,
    io,
    mem::size_of,
    os::fd::{AsRawFd as _, BorrowedFd, OwnedFd},
    ptr,
};

use libbpf_sys::{bpf_attach_type, bpf_link_create_opts};

use super::{Failure, Result, own};

/// Creates a link of `program` to `target` (a descriptor, or 0).
///
/// # Errors
/// The kernel's.
pub(in crate::features) fn link(
    program: BorrowedFd<'_>,
    target: i32,
    attach: bpf_attach_type,
    change: impl FnOnce(&mut bpf_link_create_opts),
) -> Result<OwnedFd> {
    let mut options =
        bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as libbpf_sys::size_t, ..Default::default() };
    change(&mut options);
    // SAFETY: the options outlive the call; whoever set pointers in them vouches for these.
    let fd = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), target, attach, &raw const options) };
    own(fd).map_err(|error| Failure::kernel("attach", &error))
}

/// Attaches `program` to the functions of the kernel that `names` lists, through fprobe.
///
/// # Errors
/// The kernel's.
pub(in crate::features) fn link_kprobe_multi(
    program: BorrowedFd<'_>,
    attach: bpf_attach_type,
    names: &[&CStr],
) -> Result<OwnedFd> {
    let mut pointers: Vec<*const libc::c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let cookies: Vec<u64> = (1..=names.len() as u64).collect();
    link(program, 0, attach, |options| {
        options.__bindgen_anon_1.kprobe_multi.cnt = pointers.len() as u32;
        options.__bindgen_anon_1.kprobe_multi.syms = pointers.as_mut_ptr();
        options.__bindgen_anon_1.kprobe_multi.cookies = cookies.as_ptr();
    })
}

/// Attaches `program` to an offset of the file at `path`.
///
/// # Errors
/// The kernel's.
pub(in crate::features) fn link_uprobe_multi(
    program: BorrowedFd<'_>,
    attach: bpf_attach_type,
    path: &CStr,
    offset: u64,
) -> Result<OwnedFd> {
    let offsets = [offset as libc::c_ulong];
    link(program, 0, attach, |options| {
        options.__bindgen_anon_1.uprobe_multi.path = path.as_ptr();
        options.__bindgen_anon_1.uprobe_multi.offsets = offsets.as_ptr();
        options.__bindgen_anon_1.uprobe_multi.cnt = 1;
    })
}

/// Attaches a raw tracepoint, or a tracing program that names its target itself where `name` is `None`.
///
/// # Errors
/// The kernel's.
pub(in crate::features) fn raw_tracepoint(program: BorrowedFd<'_>, name: Option<&CStr>) -> Result<OwnedFd> {
    let name = name.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: the name is null or outlives the call.
    own(unsafe { libbpf_sys::bpf_raw_tracepoint_open(name, program.as_raw_fd()) })
        .map_err(|error| Failure::kernel("attach", &error))
}

/// What a perf event is of.
#[derive(Debug, Clone, Copy)]
pub(in crate::features) enum Event<'a> {
    /// A tracepoint, by its id in tracefs.
    Tracepoint(u64),
    /// A probe on a function of the kernel; `kind` is the number of the event source in sysfs.
    Kprobe { kind: u32, returns: bool, function: &'a CStr },
    /// A probe on an offset of a file; likewise.
    Uprobe { kind: u32, returns: bool, path: &'a CStr, offset: u64 },
    /// The CPU clock in software, at a low frequency.
    CpuClock,
}

/// `struct perf_event_attr` as of its first version with `config2` (64 bytes of `PERF_ATTR_SIZE_VER0`, then two fields).
#[repr(C)]
#[derive(Debug, Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
}

/// Opens a perf event on CPU 0 for all tasks, not counting yet.
///
/// # Errors
/// The kernel's.
pub(in crate::features) fn perf_event(event: Event<'_>) -> Result<OwnedFd> {
    /// `PERF_TYPE_SOFTWARE`, `PERF_TYPE_TRACEPOINT` (include/uapi/linux/perf_event.h).
    const SOFTWARE: u32 = 1;
    const TRACEPOINT: u32 = 2;
    /// `PERF_SAMPLE_RAW`.
    const RAW: u64 = 1 << 10;
    /// `PERF_FLAG_FD_CLOEXEC`.
    const CLOEXEC: libc::c_ulong = 1 << 3;
    let mut attr = PerfEventAttr {
        size: size_of::<PerfEventAttr>() as u32,
        sample_period: 1,
        wakeup_events: 1,
        ..Default::default()
    };
    match event {
        Event::Tracepoint(id) => {
            (attr.kind, attr.config, attr.sample_type) = (TRACEPOINT, id, RAW);
        }
        Event::Kprobe { kind, returns, function } => {
            // Bit 0 of `config` is `retprobe` (/sys/bus/event_source/devices/kprobe/format/retprobe).
            (attr.kind, attr.config, attr.config1) = (kind, u64::from(returns), function.as_ptr() as u64);
        }
        Event::Uprobe { kind, returns, path, offset } => {
            (attr.kind, attr.config, attr.config1, attr.config2) =
                (kind, u64::from(returns), path.as_ptr() as u64, offset);
        }
        Event::CpuClock => (attr.kind, attr.sample_period) = (SOFTWARE, 1_000_000_000),
    }
    // SAFETY: the attributes and the strings in them outlive the call; `size` tells the kernel how many bytes there are.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, -1, 0, -1, CLOEXEC) };
    let owned = if fd < 0 { Err(io::Error::last_os_error()) } else { own(fd as i32) };
    owned.map_err(|error| Failure::kernel("perf_event_open", &error))
}

/// Attaches `program` to a perf event the way that kernels before 5.15 have, and lets it count.
///
/// # Errors
/// The kernel's.
pub(in crate::features) fn set_program(event: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<()> {
    /// `_IOW('$', 8, __u32)` and `_IO('$', 0)` (include/uapi/linux/perf_event.h).
    const SET_BPF: libc::Ioctl = 0x4004_2408u32 as libc::Ioctl;
    const ENABLE: libc::Ioctl = 0x2400;
    for (request, argument) in [(SET_BPF, program.as_raw_fd()), (ENABLE, 0)] {
        // SAFETY: both requests take an integer.
        if unsafe { libc::ioctl(event.as_raw_fd(), request, argument) } < 0 {
            return Err(Failure::kernel("attach", &io::Error::last_os_error()));
        }
    }
    Ok(())
}

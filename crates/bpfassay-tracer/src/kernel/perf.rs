// SPDX-License-Identifier: MIT OR Apache-2.0
//! Perf events, to which programs of kprobes, uprobes and tracepoints are attached.

use std::{
    ffi::CStr,
    io,
    mem::size_of,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
    path::Path,
};

use super::tracefs;

/// Returns the number of an event source of the kernel: `kprobe`, `uprobe`.
///
/// # Errors
/// The kernel has no such source, or its number cannot be read.
pub(crate) fn source(name: &str) -> io::Result<u32> {
    let number = tracefs::number(Path::new(&source_path(name)))?;
    u32::try_from(number).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Returns the file that contains the number.
pub(crate) fn source_path(name: &str) -> String {
    format!("/sys/bus/event_source/devices/{name}/type")
}

/// The kind of a perf event.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PerfEvent<'a> {
    /// A tracepoint, by its id in tracefs.
    Tracepoint(u64),
    /// A probe on a function of the kernel. `kind` is the number of the event source in sysfs.
    Kprobe { kind: u32, returns: bool, function: &'a CStr },
    /// A probe on an offset in a file. `kind` is the number of the event source in sysfs.
    Uprobe { kind: u32, returns: bool, path: &'a CStr, offset: u64 },
    /// The CPU clock in software, at a low frequency.
    CpuClock,
}

/// `struct perf_event_attr` (include/uapi/linux/perf_event.h) in its first version with `config2`:
/// 64 bytes of `PERF_ATTR_SIZE_VER0`, then two fields.
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

/// Opens a perf event of all tasks, which runs programs after [`enable`]. They run wherever the
/// event occurs, whichever CPU is given here (`kprobe_perf_func` and similar functions in
/// kernel/trace/trace_kprobe.c).
///
/// # Errors
/// The kernel's error, if it refuses the event: no such function or tracepoint, or no permission.
pub(crate) fn open(event: PerfEvent<'_>) -> io::Result<OwnedFd> {
    /// `PERF_TYPE_SOFTWARE`, `PERF_TYPE_TRACEPOINT` (include/uapi/linux/perf_event.h).
    const SOFTWARE: u32 = 1;
    const TRACEPOINT: u32 = 2;
    /// `PERF_FLAG_FD_CLOEXEC`.
    const CLOEXEC: libc::c_ulong = 1 << 3;
    let mut attr = PerfEventAttr {
        size: size_of::<PerfEventAttr>() as u32,
        sample_period: 1,
        wakeup_events: 1,
        ..Default::default()
    };
    match event {
        PerfEvent::Tracepoint(id) => (attr.kind, attr.config) = (TRACEPOINT, id),
        PerfEvent::Kprobe { kind, returns, function } => {
            // Bit 0 of `config` is `retprobe`
            // (/sys/bus/event_source/devices/kprobe/format/retprobe).
            (attr.kind, attr.config, attr.config1) = (kind, u64::from(returns), function.as_ptr() as u64);
        }
        PerfEvent::Uprobe { kind, returns, path, offset } => {
            (attr.kind, attr.config, attr.config1, attr.config2) =
                (kind, u64::from(returns), path.as_ptr() as u64, offset);
        }
        PerfEvent::CpuClock => (attr.kind, attr.sample_period) = (SOFTWARE, 1_000_000_000),
    }
    // SAFETY: the attributes and the strings in them outlive the call; `size` is the number of
    // bytes.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, -1, 0, -1, CLOEXEC) };
    let Ok(fd) = i32::try_from(fd) else { return Err(io::Error::other("the kernel gave no descriptor")) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches `program` to an event in the way of kernels before 5.15.
///
/// # Errors
/// The kernel's error, if it refuses the program for this event.
pub(crate) fn set_program(event: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    /// `_IOW('$', 8, __u32)` (include/uapi/linux/perf_event.h).
    const SET_BPF: libc::Ioctl = 0x4004_2408u32 as libc::Ioctl;
    request(event, SET_BPF, program.as_raw_fd())
}

/// Makes `event` run its programs.
///
/// # Errors
/// The kernel's error, if it cannot enable the event.
pub(crate) fn enable(event: BorrowedFd<'_>) -> io::Result<()> {
    /// `_IO('$', 0)`.
    const ENABLE: libc::Ioctl = 0x2400;
    request(event, ENABLE, 0)
}

fn request(event: BorrowedFd<'_>, request: libc::Ioctl, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: both requests take an integer.
    if unsafe { libc::ioctl(event.as_raw_fd(), request, argument) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

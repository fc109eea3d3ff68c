// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts every CPU at a short interval, so that CPUs that take turns take short ones.
//!
//! Under QEMU's instruction clock, several CPUs share one thread of the host. Each executes until
//! it waits or the next timer of the guest is due (QEMU 7.2: `icount_get_limit`; later versions
//! divide that time by the number of CPUs). Then the next CPU executes. Hardly any turn ends during
//! the update of a map without short timers.

use std::{
    io,
    os::fd::{FromRawFd as _, OwnedFd},
};

use crate::error::{Error, Result};

/// `struct perf_event_attr` of include/uapi/linux/perf_event.h as of its first version
/// (`PERF_ATTR_SIZE_VER0`).
#[repr(C)]
#[derive(Default)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sampled: u64,
    read: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    address: u64,
}

/// `PERF_TYPE_SOFTWARE`, whose event 0 is `PERF_COUNT_SW_CPU_CLOCK`.
const SOFTWARE: u32 = 1;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// The timers of all CPUs. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct ShortTurns {
    _timers: Vec<OwnedFd>,
}

impl ShortTurns {
    /// Starts a timer with the period of `nanoseconds` on each online CPU. The kernel's shortest
    /// period is 10,000 (`perf_swevent_init_hrtimer`, kernel/events/core.c).
    ///
    /// # Errors
    /// The kernel refuses a timer.
    pub(crate) fn begin(nanoseconds: u64) -> Result<Self> {
        // SAFETY: the call takes no addresses.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        let cpus = libc::c_int::try_from(cpus).unwrap_or(1);
        let timers = (0..cpus).map(|cpu| timer(cpu, nanoseconds)).collect::<io::Result<Vec<_>>>();
        Ok(Self { _timers: timers.map_err(Error::system("start a short timer on each CPU"))? })
    }
}

fn timer(cpu: libc::c_int, nanoseconds: u64) -> io::Result<OwnedFd> {
    let attributes = EventAttributes {
        kind: SOFTWARE,
        size: size_of::<EventAttributes>() as u32,
        period: nanoseconds,
        ..EventAttributes::default()
    };
    // SAFETY: the attributes outlive the call, and their size is in them.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, cpu, -1, CLOSE_ON_EXEC) };
    match libc::c_int::try_from(fd) {
        // SAFETY: the call returned a new descriptor.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

//! Run counts and run times that the kernel keeps of programs (`BPF_ENABLE_STATS`, Linux 5.8 and later).

use std::{
    io,
    os::fd::{FromRawFd as _, OwnedFd},
};

/// Switches statistics on, for every program of the machine, for as long as the descriptor is open.
///
/// # Errors
/// The kernel's error.
pub(crate) fn enable() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

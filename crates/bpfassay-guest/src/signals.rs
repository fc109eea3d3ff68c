// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that the agent reads from file descriptors.

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd},
};

use crate::error::{Error, Result};

/// Signals that ask an agent on a running system to end.
pub(crate) const TO_END: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Blocks the signals that every agent reads from file descriptors. Call this before the first
/// thread starts. The standard library unblocks the signals in programs that the agent starts.
///
/// # Errors
/// The kernel refuses to block signals.
pub(crate) fn block() -> Result<()> {
    block_all(&[libc::SIGCHLD, libc::SIGIO])
}

/// Blocks [`TO_END`] in the same way.
///
/// # Errors
/// The kernel refuses to block signals.
pub(crate) fn block_to_end() -> Result<()> {
    block_all(&TO_END)
}

fn block_all(signals: &[libc::c_int]) -> Result<()> {
    // SAFETY: the set is initialised by sigemptyset before use.
    let status = unsafe {
        let set = set(signals);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
    };
    if status == 0 { Ok(()) } else { Err(Error::system("block signals")(io::Error::from_raw_os_error(status))) }
}

/// Makes `signals` readable from a descriptor (signalfd(2)). They must be blocked in every thread.
///
/// # Errors
/// The kernel refuses another descriptor.
pub(crate) fn descriptor(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised; a descriptor of zero or above is new and ours.
    unsafe {
        let set = set(signals);
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

fn set(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set, whose every bit pattern is valid.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

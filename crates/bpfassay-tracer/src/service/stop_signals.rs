// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGINT and SIGTERM as a readable file descriptor, so that kprobes made through tracefs are
//! removed at the end.

use std::{
    io, mem,
    os::fd::{FromRawFd as _, OwnedFd},
    ptr,
};

/// Blocks both signals for this thread. Returns a descriptor that becomes readable when one
/// arrives.
///
/// # Errors
/// The kernel's error, if it refuses the mask or the descriptor.
pub(crate) fn descriptor() -> io::Result<OwnedFd> {
    // SAFETY: `sigset_t` is plain data and is initialised before use; all pointers are valid during
    // each call.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::sigaddset(&mut set, libc::SIGTERM);
        let error = libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut());
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

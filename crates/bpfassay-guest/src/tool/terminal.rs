// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal that is a tool's standard output. Programs write every line at once to a terminal,
//! but to a pipe only when a buffer is full (C11, 7.21.3). Through a pipe, counts would arrive
//! minutes late, or never.

use std::{fs::File, os::fd::OwnedFd};

use rustix::{
    fs::{Mode, OFlags, fchown, open as open_file},
    process::Uid,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{OptionalActions, tcgetattr, tcsetattr},
};

use crate::error::{Error, Result};

/// Opens a pseudo-terminal of `user` that passes on every byte unchanged. Returns the agent's end
/// and the tool's end.
///
/// # Errors
/// The kernel's error (devpts is not mounted at /dev/pts).
pub(super) fn open(user: u32) -> Result<(File, OwnedFd)> {
    let make = || -> rustix::io::Result<(OwnedFd, OwnedFd)> {
        // This must not become a controlling terminal: the agent does not end with it.
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let path = ptsname(&ours, Vec::new())?;
        let theirs = open_file(path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        fchown(&theirs, Some(Uid::from_raw(user)), None)?;
        let mut settings = tcgetattr(&theirs)?;
        settings.make_raw();
        tcsetattr(&theirs, OptionalActions::Now, &settings)?;
        Ok((ours, theirs))
    };
    let (ours, theirs) = make().map_err(Error::system("make a terminal for a tool"))?;
    Ok((File::from(ours), theirs))
}

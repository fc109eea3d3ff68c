// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends a guest whose unread output exceeds a limit of the host's memory.

use std::{
    os::fd::OwnedFd,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::mpsc;

use crate::{bounded_output::Backlog, error::VmError, guest_ending::EndReason, limits};

/// Interval between checks of the files. A guest fills memory at up to some GB/s.
const PERIOD: Duration = Duration::from_millis(5);

/// Watches until it is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    _wanted: Sender<()>,
}

/// Watches named `backlogs` of the QEMU with this process id, which nobody has waited for yet. If
/// one exceeds its limit, reports it through `floods` and kills QEMU.
///
/// It uses a thread, because a task runs only when other tasks yield. A guest can fill the memory
/// before that.
///
/// # Errors
/// [`VmError::System`] if the thread cannot be started.
pub(crate) fn watch(
    backlogs: Vec<(&'static str, Backlog)>,
    process: Option<u32>,
) -> Result<(Guard, mpsc::UnboundedReceiver<EndReason>), VmError> {
    let (wanted, dropped) = channel::<()>();
    let (sender, floods) = mpsc::unbounded_channel();
    if !backlogs.is_empty() {
        // Without pidfds (Linux before 5.3), the supervisor kills QEMU as soon as it runs.
        let qemu = process
            .and_then(|id| Pid::from_raw(id.cast_signed()))
            .and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok());
        let look = move || {
            while dropped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                if let Some(from) = too_long(&backlogs) {
                    let message = format!("more than {} MiB were left to be read on {from}", Backlog::LIMIT >> 20);
                    // Sent before the kill, so that the reason is known when QEMU's exit is
                    // noticed. A missing receiver means that the guest has no owner any more.
                    let _ = sender.send(EndReason::Flood { message });
                    kill(qemu.as_ref());
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("guest-floods".to_owned()).spawn(look);
        thread.map_err(|source| VmError::System { what: "a thread", source })?;
    }
    Ok((Guard { _wanted: wanted }, floods))
}

/// Returns the reason if `status` shows that QEMU exceeded its file size limit, which is the
/// backstop of this watch.
pub(crate) fn of_exit(status: &ExitStatus) -> Option<EndReason> {
    (status.signal() == Some(libc::SIGXFSZ))
        .then(|| EndReason::Flood { message: format!("more than {} MiB were put out", limits::FILE_SIZE >> 20) })
}

fn too_long(backlogs: &[(&'static str, Backlog)]) -> Option<&'static str> {
    let is_too_long = |backlog: &Backlog| backlog.unread().is_ok_and(|unread| unread > Backlog::LIMIT);
    backlogs.iter().find(|(_, backlog)| is_too_long(backlog)).map(|&(from, _)| from)
}

fn kill(qemu: Option<&OwnedFd>) {
    if let Some(qemu) = qemu {
        // QEMU may have exited by itself in the meantime.
        let _ = pidfd_send_signal(qemu, Signal::KILL);
    }
}

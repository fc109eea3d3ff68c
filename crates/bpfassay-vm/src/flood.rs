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

use crate::{EndReason, VmError, limits, output::Backlog};

/// How often the files are checked. A guest fills memory at up to some GB/s.
const PERIOD: Duration = Duration::from_millis(5);

/// Watches until this is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    _wanted: Sender<()>,
}

/// Watches `backlogs`, each with its name, of the QEMU with this process id, which has not been
/// waited for yet. When one exceeds its limit, it is reported through `floods`, and QEMU is killed.
///
/// In a thread of its own: a task of the runtime runs when other tasks yield, and a guest may fill
/// the memory before that.
///
/// # Errors
/// [`VmError::System`] where the thread cannot be started.
pub(crate) fn watch(
    backlogs: Vec<(&'static str, Backlog)>,
    process: Option<u32>,
) -> Result<(Guard, mpsc::UnboundedReceiver<EndReason>), VmError> {
    let (wanted, dropped) = channel::<()>();
    let (sender, floods) = mpsc::unbounded_channel();
    if !backlogs.is_empty() {
        // Where there are no pidfds (Linux before 5.3) the supervisor kills it, as soon as it runs.
        let qemu = process
            .and_then(|id| Pid::from_raw(id.cast_signed()))
            .and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok());
        let look = move || {
            while dropped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                if let Some(from) = too_long(&backlogs) {
                    let message = format!("more than {} MiB were left to be read on {from}", Backlog::LIMIT >> 20);
                    // Before the kill, so that the reason is known when QEMU's exit is noticed.
                    // Where there is no receiver, the guest has no owner any more.
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

/// The reason if QEMU exited with `status` because it wrote a file beyond its limit, the backstop
/// of this watch.
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
        // It may just have exited by itself.
        let _ = pidfd_send_signal(qemu, Signal::KILL);
    }
}

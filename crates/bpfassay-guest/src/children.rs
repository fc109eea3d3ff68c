// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that the agent starts, and orphans that become children of the agent because it is
//! process 1.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd},
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags},
    fs::{OFlags, fcntl_setfl},
    io::Errno,
    process::{Pid, Signal, WaitOptions, kill_process, wait},
};

use crate::{
    agent_link::wait_readable,
    error::{Error, Result},
    signals,
};

/// Reaps every child that has exited. A second instance would reap the first one's children.
#[derive(Debug)]
pub(crate) struct Children {
    signals: File,
    /// Exit statuses of children that [`Children::expect`] named.
    ended: BTreeMap<i32, Option<ExitStatus>>,
}

impl Children {
    /// Starts to watch. `SIGCHLD` must be blocked ([`signals::block`]).
    pub(crate) fn watch() -> Result<Self> {
        let signals = signals::descriptor(&[libc::SIGCHLD]).map_err(Error::system("watch child processes"))?;
        fcntl_setfl(&signals, OFlags::NONBLOCK).map_err(Error::system("watch child processes"))?;
        Ok(Self { signals: signals.into(), ended: BTreeMap::new() })
    }

    /// Keeps the exit status of this child until [`Children::end_of`] returns it. Call before the
    /// next [`Children::reap`].
    pub(crate) fn expect(&mut self, pid: Pid) {
        self.ended.entry(pid.as_raw_nonzero().get()).or_default();
    }

    /// Reaps every child that has exited.
    pub(crate) fn reap(&mut self) -> Result<()> {
        let mut signals = [0; 16 * size_of::<libc::signalfd_siginfo>()];
        loop {
            match self.signals.read(&mut signals) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(Error::system("read the signals of child processes")(error)),
            }
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if let Some(end) = self.ended.get_mut(&pid.as_raw_nonzero().get()) {
                        *end = Some(ExitStatus::from_raw(status.as_raw()));
                    }
                }
                Ok(None) | Err(Errno::CHILD) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Error::system("wait for child processes")(error)),
            }
        }
    }

    /// Returns the exit status of this child once, if the child has exited.
    pub(crate) fn end_of(&mut self, pid: Pid) -> Option<ExitStatus> {
        let pid = pid.as_raw_nonzero().get();
        let status = *self.ended.get(&pid)?;
        if status.is_some() {
            self.ended.remove(&pid);
        }
        status
    }

    /// Waits until this child exits; `None` if it has not exited within `patience`.
    pub(crate) fn wait_for(&mut self, pid: Pid, patience: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + patience;
        loop {
            self.reap()?;
            if let Some(status) = self.end_of(pid) {
                return Ok(Some(status));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            wait_readable(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(left))?;
        }
    }

    /// Kills this child and reaps it.
    pub(crate) fn kill(&mut self, pid: Pid, patience: Duration) -> Result<Option<ExitStatus>> {
        match kill_process(pid, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => self.wait_for(pid, patience),
            Err(error) => Err(Error::system("kill a child process")(error)),
        }
    }
}

impl AsFd for Children {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

/// Returns the process id of a child that the standard library started.
pub(crate) fn pid_of(child: &std::process::Child) -> Result<Pid> {
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| Error::Order(format!("{} is no process id", child.id())))
}

/// Describes how a program ended, as the predicate of a sentence.
pub(crate) fn ended_how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => format!("ended: {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_are_described_as_predicates() {
        assert_eq!(ended_how(ExitStatus::from_raw(3 << 8)), "ended with exit status 3");
        assert_eq!(ended_how(ExitStatus::from_raw(9)), "was ended by signal 9");
    }
}

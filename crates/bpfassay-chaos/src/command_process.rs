// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finding and signalling processes by id.

use std::{fs, io};

use rustix::process::{Pid, Signal};

/// Sends `signal` to `process`.
///
/// # Errors
/// `ESRCH` for process 0 and for a process that does not exist, `EINVAL` for a number that is not a
/// signal, `EPERM` for a process of another user.
pub fn signal(process: u32, signal: i32) -> io::Result<()> {
    let none = || io::Error::from(rustix::io::Errno::SRCH);
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or_else(none)?;
    let signal = Signal::from_named_raw(signal).ok_or_else(|| io::Error::from(rustix::io::Errno::INVAL))?;
    Ok(rustix::process::kill_process(pid, signal)?)
}

/// A process with its command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessLine {
    /// Its id.
    pub id: u32,
    /// The command line, with spaces between the arguments.
    pub command: String,
}

/// Returns the processes whose environment contains `marker`, without this one and without zombies.
#[must_use]
pub fn marked(marker: &str) -> Vec<ProcessLine> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|&id| id != std::process::id())
        .filter_map(|id| {
            let environment = fs::read(format!("/proc/{id}/environ")).ok()?;
            let holds = environment.windows(marker.len()).any(|window| window == marker.as_bytes());
            let arguments = fs::read(format!("/proc/{id}/cmdline")).ok()?;
            let command = String::from_utf8_lossy(&arguments).replace('\0', " ").trim().to_owned();
            (holds && !arguments.is_empty()).then_some(ProcessLine { id, command })
        })
        .collect()
}

/// Returns the peak memory of `process` in KiB, if it is known.
#[must_use]
pub fn peak_kib(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn processes_are_found_by_their_environment() {
        let marker = format!("CHAOS_TEST=processes-{}", std::process::id());
        let (name, value) = marker.split_once('=').unwrap();
        let mut child = Command::new("sleep").arg("60").env(name, value).spawn().unwrap();
        // The environment is complete once the child has executed `sleep`.
        let found = (0..100).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            marked(&marker).into_iter().next()
        });
        assert!(found.is_some_and(|process| process.id == child.id() && process.command == "sleep 60"));
        assert!(peak_kib(child.id()).is_some());
        signal(child.id(), 9).unwrap();
        child.wait().unwrap();
        assert_eq!(marked(&marker), []);
        assert!(signal(0, 9).is_err());
    }
}

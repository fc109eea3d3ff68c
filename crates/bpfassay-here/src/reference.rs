// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the probe for the reference tracer on this machine by attaching it. The refusals of
//! guests' kernels, on the other hand, are known in advance.

use std::{
    io,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use bpfassay_protocol::{ProbeConfiguration, probe::Probe};

/// Probes that count what calls return, by mount and cgroup. Probes that count calls of the virtual
/// file system come first, because most tools count these calls.
const PROBES: [Probe; 4] = [Probe::Fexit, Probe::Kretprobe, Probe::RawTracepoint, Probe::Tracepoint];

/// How long a probe can take to attach and detach.
const PATIENCE: Duration = Duration::from_secs(60);

/// Interval at which the tracer's exit is checked.
const PERIOD: Duration = Duration::from_millis(20);

/// Returns the first of [`PROBES`] that `tracer` attaches on this machine, if any.
///
/// # Errors
/// The system's error if the tracer cannot be started.
pub(super) fn find(tracer: &Path) -> io::Result<Option<ProbeConfiguration>> {
    for probe in PROBES {
        if attaches(tracer, probe)? {
            return Ok(Some(ProbeConfiguration::with_defaults(probe)));
        }
    }
    Ok(None)
}

/// Returns whether `tracer` attaches `probe`. Its standard input is empty, so it detaches at once
/// and exits with 0 (`bpfassay_protocol::tracer_messages`).
fn attaches(tracer: &Path, probe: Probe) -> io::Result<bool> {
    let mut command = Command::new(tracer);
    command.args(["--probe", probe.name()]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(status.success()),
            None if Instant::now() >= deadline => {
                child.kill()?;
                child.wait()?;
                return Ok(false);
            }
            None => thread::sleep(PERIOD),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn the_first_probe_that_attaches_is_the_reference() {
        let directory = tempfile::tempdir().unwrap();
        let tracer = |refused: &str| {
            let path = directory.path().join("tracer");
            fs::write(&path, format!("#!/bin/sh\ncase \"$2\" in {refused}) exit 3;; esac\ncat\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            find(&path).unwrap().map(|found| found.probe)
        };
        assert_eq!(tracer("none"), Some(Probe::Fexit));
        assert_eq!(tracer("fexit|kretprobe"), Some(Probe::RawTracepoint));
        assert_eq!(tracer("*"), None);
        assert!(find(&directory.path().join("none")).is_err());
    }
}

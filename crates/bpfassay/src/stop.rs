// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stops on signals, and respects signals that this process ignored at its start.

#![allow(clippy::disallowed_methods, reason = "opens /dev/null, and reads a file of the kernel")]

use std::{
    fs::{self, File},
    io,
};

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::INTERRUPTED;

/// The file in which Linux shows the signals that a process ignores (proc_pid_status(5)).
const STATUS: &str = "/proc/self/status";

/// Returns a token that a signal cancels. The first Ctrl-C (or SIGTERM, or the end of the terminal)
/// stops all guests and keeps what was measured. The second one ends the program at once, which
/// kills its guests. The journal is intact in both cases. A signal that this process was started to
/// ignore stays ignored, such as SIGHUP under `nohup`, or SIGINT for background jobs of a shell.
pub(crate) fn on_signals() -> CancellationToken {
    let stop = CancellationToken::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let cancel = stop.clone();
        match listen(kind) {
            Ok(Some(mut signal)) => {
                tokio::spawn(async move {
                    signal.recv().await;
                    cancel.cancel();
                    tracing::warn!("stopping all guests; what was measured is kept (once more: end at once)");
                    signal.recv().await;
                    std::process::exit(INTERRUPTED.into());
                });
            }
            Ok(None) => {}
            Err(error) => tracing::warn!("cannot listen for signals ({error}): Ctrl-C will end bpfassay at once"),
        }
    }
    stop
}

/// Returns the signals of `kind` from now on; `None` if this process has ignored them since its
/// start.
///
/// # Errors
/// The errors of the system, if no handler can be installed.
pub(crate) fn listen(kind: SignalKind) -> io::Result<Option<Signal>> {
    let is_ignored = match fs::read_to_string(STATUS) {
        Ok(status) => ignores(&status, kind.as_raw_value()),
        Err(error) => {
            tracing::warn!("{STATUS}: {error}; signals end this process even where they were to be ignored");
            false
        }
    };
    if is_ignored { Ok(None) } else { signal(kind).map(Some) }
}

/// Whether a process with this `status` ignores the signal with the number `signal`.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let bit = signal.checked_sub(1).and_then(|bit| 1_u64.checked_shl(bit.try_into().ok()?));
    matches!((mask, bit), (Some(mask), Some(bit)) if mask & bit != 0)
}

/// The number of descriptors that tokio needs for itself.
const FOR_RUNTIME: usize = 16;

/// Checks that this process can open the descriptors that tokio needs for itself: tokio panics
/// without them.
///
/// # Errors
/// The errors of open(2).
pub(crate) fn descriptors_for_runtime() -> io::Result<()> {
    let spare: io::Result<Vec<File>> = (0..FOR_RUNTIME).map(|_| File::open("/dev/null")).collect();
    spare.map(drop)
}

/// Turns a write beyond the file size limit of this process (`ulimit -f`) into an error instead of
/// the end of the process. Child processes are not affected.
///
/// # Errors
/// The errors of the system, if no handler can be installed: then such a write ends the process.
pub(crate) fn survive_file_size_limit() -> io::Result<()> {
    descriptors_for_runtime()?;
    // The handler outlives the runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    signal(SignalKind::from_raw(Number::XFSZ.as_raw())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        // SIGHUP is 1, SIGINT 2, SIGPIPE 13, SIGTERM 15.
        let status = "Name:\tbpfassay\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert_eq!(
            [1, 2, 13, 15, 0, 65].map(|signal| ignores(status, signal)),
            [true, false, true, false, false, false]
        );
        assert!(!ignores("Name:\tx\n", 1));
    }
}

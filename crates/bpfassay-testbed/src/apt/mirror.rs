// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asking a mirror: again where the failure may pass, and with an error that names what is to be done.

use std::{path::Path, process::Command, thread, time::Duration};

use super::{Apt, AptError, cannot_start, sandbox::warn_of_root};
use crate::{Error, Result, cache::free_space};

/// How often a mirror is asked before it is given up.
pub(super) const ATTEMPTS: u32 = 3;

impl Apt<'_> {
    /// Runs `apt-get` as `command` gives it for each attempt, until it succeeds. `what` takes `needed` bytes in `place`, or in the cache.
    ///
    /// # Errors
    /// [`AptError`], [`Error::DiskFull`], [`Error::Program`].
    pub(super) fn ask_mirror(
        &self,
        suite: &str,
        what: &str,
        needed: u64,
        place: Option<&Path>,
        command: impl Fn(u32) -> Command,
    ) -> Result<()> {
        let mut attempt = 1;
        loop {
            let output = command(attempt).output().map_err(|source| cannot_start("apt-get", source))?;
            warn_of_root(&output.stderr);
            if output.status.success() {
                return Ok(());
            }
            let stderr = String::from_utf8_lossy(&output.stderr);
            if is_full(&stderr) {
                let path = place.unwrap_or(self.cache().root()).to_owned();
                let free = free_space(&path).unwrap_or(0);
                return Err(Error::DiskFull { what: what.to_owned(), path, needed, free });
            }
            let error = AptError::from_output(suite, &stderr, attempt);
            if !error.is_passing() || attempt == ATTEMPTS {
                return Err(error.into());
            }
            tracing::info!("attempt {attempt} of {ATTEMPTS} at the mirror failed; trying again");
            tracing::debug!("{error}");
            thread::sleep(Duration::from_secs(attempt.into()));
            attempt += 1;
        }
    }
}

/// Whether a program of Debian reports that the disk is full.
pub(super) fn is_full(stderr: &str) -> bool {
    ["No space left on device", "Disk quota exceeded", "don't have enough free space"]
        .iter()
        .any(|message| stderr.contains(message))
}

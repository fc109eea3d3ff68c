// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asks a mirror, again if the failure may be temporary. Errors say what to do.

use std::{
    io::{self, Read as _},
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use super::{Apt, apt_sandbox::warn_of_root, cannot_start};
use crate::{
    cache::free_space,
    error::{PackagesError, Result, apt_failure::AptError},
};

/// How often a mirror is asked before the download fails.
pub(super) const ATTEMPTS: u32 = 3;

impl Apt<'_> {
    /// Runs the apt program that `command` builds for each attempt, until it succeeds. `what` needs
    /// `needed` bytes in `place`, or in the cache. `look` is called whenever apt reports progress.
    ///
    /// # Errors
    /// [`AptError`] if apt fails. [`PackagesError::DiskFull`] if `what` does not fit on the disk.
    /// [`PackagesError::Program`] if apt cannot be started.
    pub(super) fn ask_mirror(
        &self,
        suite: &str,
        what: &str,
        needed: u64,
        place: Option<&Path>,
        look: &mut dyn FnMut(),
        command: impl Fn(u32) -> Command,
    ) -> Result<()> {
        let mut attempt = 1;
        loop {
            let mut command = command(attempt);
            command.args(["-o", "APT::Status-Fd=1"]);
            let watch = |line: &str| {
                if let Some(done) = downloaded(line, needed) {
                    self.stage().at(done);
                    look();
                }
            };
            let output = watched(&mut command, watch)
                .map_err(|source| cannot_start(&command.get_program().to_string_lossy(), source))?;
            warn_of_root(&output.stderr);
            if output.status.success() {
                return Ok(());
            }
            let stderr = String::from_utf8_lossy(&output.stderr);
            if is_full(&stderr) {
                let path = place.unwrap_or(self.cache().root()).to_owned();
                let free = free_space(&path).unwrap_or(0);
                return Err(PackagesError::DiskFull { what: what.to_owned(), path, needed, free });
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

/// Runs `command` to its end, and passes each line of its standard output to `watch`.
fn watched(command: &mut Command, mut watch: impl FnMut(&str)) -> io::Result<Output> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        let messages = scope.spawn(|| {
            let mut text = Vec::new();
            stderr.map_or(Ok(0), |mut stream| stream.read_to_end(&mut text)).map(|_| text)
        });
        let mut line = Vec::new();
        for byte in stdout.into_iter().flat_map(|stream| io::BufReader::new(stream).bytes()) {
            match byte? {
                b'\n' => {
                    watch(&String::from_utf8_lossy(&line));
                    line.clear();
                }
                // The rest of a longer line is skipped.
                byte if line.len() < LONGEST_LINE => line.push(byte),
                _ => {}
            }
        }
        let stderr = messages.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Output { status: child.wait()?, stdout: Vec::new(), stderr })
    })
}

/// Longest line of apt's progress that is read, in bytes.
const LONGEST_LINE: usize = 1024;

/// Returns how many of `size` bytes apt has downloaded, from a line `dlstatus:ITEM:PERCENT:TEXT`
/// (README.progress-reporting of apt).
fn downloaded(line: &str, size: u64) -> Option<u64> {
    let percent: f64 = line.strip_prefix("dlstatus:")?.split(':').nth(1)?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some((size as f64 * percent / 100.0) as u64)
}

/// Whether a program of Debian reports that the disk is full.
pub(super) fn is_full(stderr: &str) -> bool {
    ["No space left on device", "Disk quota exceeded", "don't have enough free space"]
        .iter()
        .any(|message| stderr.contains(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_of_apt_is_counted_in_bytes() {
        assert_eq!(downloaded("dlstatus:1:20.5:Retrieving file 1 of 3 (2min left)", 1000), Some(205));
        assert_eq!(downloaded("dlstatus:3:100:Done", 1000), Some(1000));
        for other in ["Get:1 http://m.example x [1 B]", "dlstatus:1:nan:x", "dlstatus:1:-3:x", "dlstatus:1", ""] {
            assert_eq!(downloaded(other, 1000), None, "{other}");
        }
    }

    #[test]
    fn a_program_is_watched_line_by_line_to_its_end() {
        let mut lines = Vec::new();
        let script = "echo one; echo two; echo wrong >&2; head -c 5000 /dev/zero | tr '\\0' x; echo; exit 3";
        let output = watched(Command::new("sh").args(["-c", script]), |line| lines.push(line.to_owned())).unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(3), &b"wrong\n"[..]));
        assert_eq!(lines[..2], ["one", "two"]);
        assert_eq!(lines[2].len(), LONGEST_LINE);
    }
}

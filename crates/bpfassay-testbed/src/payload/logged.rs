// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs build programs with their output in a log, and reports cargo's progress.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
    process::{Command, Stdio},
};

use bpfassay_packages::{
    error::PackagesError,
    stages::{ProgressStep, RunningStage},
};

use crate::error::{Error, Result};

/// Last lines of a failed build's output that go into the error.
const LINES: usize = 12;

/// Earlier lines that go into the error because they contain an error message.
const ERRORS: usize = 4;

/// Longest line of a compiler that is written to the log as one, in bytes.
const LONGEST_LINE: u64 = 1 << 20;

pub(super) struct LoggedBuild<'a> {
    /// Name of the program, for messages.
    pub(super) program: &'a str,
    /// The Debian package that contains the program.
    pub(super) package: &'static str,
    pub(super) log: &'a Path,
}

impl LoggedBuild<'_> {
    /// Runs `command` to its end. `purpose` completes "cannot …".
    ///
    /// # Errors
    /// [`Error::Build`] if the command fails, with the last lines of its output.
    /// [`PackagesError::Program`] if it cannot be started. [`PackagesError::Io`] of the log.
    pub(super) fn to_end(&self, command: Command, purpose: &str) -> Result<()> {
        self.watched(command, purpose, |_| false)
    }

    /// Runs cargo, and reports its count of compiled units to `stage` as `step`.
    ///
    /// # Errors
    /// The errors of [`LoggedBuild::to_end`].
    pub(super) fn build(
        &self,
        command: Command,
        step: ProgressStep,
        stage: &RunningStage,
        purpose: &str,
    ) -> Result<()> {
        let mut known = None;
        self.watched(command, purpose, |line| {
            let Some((done, of)) = counted(line) else { return false };
            if known != Some(of) {
                stage.step(step, of);
                known = Some(of);
            }
            stage.at(done);
            true
        })
    }

    /// Runs `command`. Its standard error goes to the log, except for lines for which `take`
    /// returns true.
    fn watched(&self, mut command: Command, purpose: &str, mut take: impl FnMut(&str) -> bool) -> Result<()> {
        let write = || Error::io("write", self.log);
        if let Some(parent) = self.log.parent() {
            fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        }
        let mut file = File::create(self.log).map_err(write())?;
        let copy = file.try_clone().map_err(write())?;
        let mut child = command.stdin(Stdio::null()).stdout(copy).stderr(Stdio::piped()).spawn().map_err(|source| {
            PackagesError::Program { program: self.program.to_owned(), package: self.package, source }
        })?;
        let copied = child.stderr.take().map_or(Ok(()), |messages| copy_lines(messages, &mut file, &mut take));
        let status = child.wait().map_err(Error::io("wait for", self.program))?;
        copied.map_err(write())?;
        if status.success() {
            return Ok(());
        }
        let text = fs::read(self.log).map_err(Error::io("read", self.log))?;
        let what = format!(
            "cannot {purpose} ({status}); the whole output is in {}; it ends:\n{}",
            self.log.display(),
            end(&text)
        );
        Err(Error::Build { what })
    }
}

/// Copies `from` to `to`, except for lines for which `take` returns true. A carriage return also
/// ends a line, because cargo overwrites its progress.
fn copy_lines(from: impl Read, mut to: impl Write, take: &mut dyn FnMut(&str) -> bool) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    let mut written = Ok(());
    loop {
        line.clear();
        (&mut from).take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return written;
        }
        for part in line.split_inclusive(|byte| *byte == b'\r') {
            // After a failed write, the rest is read and dropped: the program must not block on a
            // full pipe.
            if !take(&String::from_utf8_lossy(part)) && written.is_ok() {
                written = to.write_all(part.strip_suffix(b"\r").unwrap_or(part));
            }
        }
    }
}

/// Parses compiled and total units from a line such as `Building [====>  ] 12/97: serde`.
fn counted(line: &str) -> Option<(u64, u64)> {
    let (_, after) = line.trim_start().strip_prefix("Building [")?.split_once("] ")?;
    let (done, of) = after.split_once(':')?.0.split_once('/')?;
    Some((done.parse().ok()?, of.parse().ok()?))
}

/// Returns the last lines of an output, preceded by its first errors. Programs that ran in parallel
/// may have written many lines after an error.
pub(crate) fn end(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let (before, last) = lines.split_at(lines.len().saturating_sub(LINES));
    let is_error = |line: &&&str| ["error: ", "error[", "Error: ", "*** "].iter().any(|mark| line.contains(mark));
    let mut shown: Vec<&str> = before.iter().filter(is_error).take(ERRORS).copied().collect();
    if !shown.is_empty() {
        shown.push("…");
    }
    shown.extend(last);
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_counts_is_reported_and_not_logged() {
        let text = "   Compiling a v1.0.0\n    Building [=>   ] 0/12: a                \r    Building [==>  ] 7/12: b, c(build)\r\
            warning: x\n     error: y\r\n    Finished `payload`\n";
        let (mut log, mut counts) = (Vec::new(), Vec::new());
        copy_lines(text.as_bytes(), &mut log, &mut |line| {
            counts.extend(counted(line));
            counted(line).is_some()
        })
        .unwrap();
        assert_eq!(counts, [(0, 12), (7, 12)]);
        let log = String::from_utf8(log).unwrap();
        assert_eq!(log, "   Compiling a v1.0.0\nwarning: x\n     error: y\n    Finished `payload`\n");
    }

    #[test]
    fn other_lines_of_cargo_count_nothing() {
        for line in ["   Compiling a v1.0.0", "Building [", "Building [=> ] 1/x: a", "Building [=> ] 12", ""] {
            assert_eq!(counted(line), None, "{line}");
        }
    }

    #[test]
    fn the_errors_of_a_long_output_are_shown_before_its_end() {
        let warnings = "x.c:1:2: note: long\n".repeat(40);
        let text =
            format!("cc a.c\na.h:7:1: fatal error: b.h: No such file\nmake: *** [a.o] Error 1\n\n{warnings}failed\n");
        let shown = end(text.as_bytes());
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[..3], ["a.h:7:1: fatal error: b.h: No such file", "make: *** [a.o] Error 1", "…"]);
        assert_eq!((lines.len(), lines.last()), (3 + LINES, Some(&"failed")));
        assert_eq!(end(b"a\nerror: b\n\n"), "a\nerror: b");
    }
}

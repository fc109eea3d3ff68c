// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console log: a file of bounded size, and the last lines in memory.

#![allow(
    clippy::disallowed_methods,
    reason = "makes the file that the caller names anew; a link of that name is removed, not followed"
)]

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

/// Number of lines kept in memory.
const TAIL_LINES: usize = 60;
/// Largest part of a line kept in memory, in bytes.
const TAIL_LINE: usize = 512;

/// Writes a console to a file up to a limit, and keeps its last lines.
///
/// After the limit, the file gets nothing more until [`Self::finish`] adds the last lines. The
/// beginning and the end of a guest matter most.
#[derive(Debug)]
pub(crate) struct ConsoleLog {
    name: String,
    file: Option<File>,
    left: u64,
    limit: u64,
    dropped: u64,
    tail: VecDeque<String>,
    problem: Option<String>,
}

impl ConsoleLog {
    /// Creates the file. Replaces an existing one, because a link at its place can lead to somebody
    /// else's file.
    ///
    /// # Errors
    /// The system's error if the existing file cannot be removed, or the new one cannot be created.
    pub(crate) fn create(path: &Path, limit: u64) -> io::Result<Self> {
        // `create_new` makes this fail for a link, too.
        let create = || File::options().write(true).create_new(true).open(path);
        let file = match create() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(path)?;
                create()?
            }
            created => created?,
        };
        Ok(Self::new(file, limit).of(path))
    }

    /// Writes to `file`, which was newly created at `path`.
    ///
    /// # Errors
    /// The error of dup(2).
    pub(crate) fn in_file(file: &File, path: &Path, limit: u64) -> io::Result<Self> {
        Ok(Self::new(file.try_clone()?, limit).of(path))
    }

    /// Sets the log's name to the file name of `path`, without extension.
    fn of(self, path: &Path) -> Self {
        Self { name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), ..self }
    }

    fn new(file: File, limit: u64) -> Self {
        let name = String::new();
        Self { name, file: Some(file), left: limit, limit, dropped: 0, tail: VecDeque::new(), problem: None }
    }

    /// Returns the file's name, which is the guest's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Writes bytes unchanged to the file. A failed write ends the file, not the guest, and
    /// [`Self::finish`] reports it.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        self.left -= room as u64;
        self.dropped += (bytes.len() - room) as u64;
        self.write(&bytes[..room]);
    }

    /// Keeps a line in memory.
    pub(crate) fn line(&mut self, line: &str) {
        if self.tail.len() == TAIL_LINES {
            self.tail.pop_front();
        }
        let end = line.floor_char_boundary(TAIL_LINE);
        self.tail.push_back(line[..end].to_owned());
    }

    /// Records that the rest of the console is not read.
    pub(crate) fn left_unread(&mut self) {
        self.problem.get_or_insert_with(|| "the console was not read to its end".to_owned());
    }

    /// Completes the file. Returns the last lines, and the reason if the file is incomplete.
    pub(crate) fn finish(mut self) -> (Vec<String>, Option<String>) {
        if self.dropped > 0 {
            let mut end = format!("\n[bpfassay: {} bytes left out here; the last lines follow]\n", self.dropped);
            for line in &self.tail {
                end.push_str(line);
                end.push('\n');
            }
            self.write(end.as_bytes());
            let limit = self.limit;
            self.problem
                .get_or_insert_with(|| format!("{} bytes above the limit of {limit} were left out", self.dropped));
        }
        (self.tail.into(), self.problem)
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(bytes)
        {
            self.problem = Some(format!("could not write the console log: {error}"));
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(log: &mut ConsoleLog, count: usize) {
        for number in 0..count {
            log.bytes(format!("line {number}\n").as_bytes());
            log.line(&format!("line {number}"));
        }
    }

    #[test]
    fn a_long_log_keeps_its_beginning_and_its_end_with_a_mark() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = ConsoleLog::create(&path, 100).unwrap();
        fill(&mut log, 1000);
        let (tail, problem) = log.finish();
        assert_eq!(tail.len(), TAIL_LINES);
        assert!(problem.unwrap().contains("above the limit of 100"));
        let text = fs::read_to_string(path).unwrap();
        assert!(text.starts_with("line 0\n"));
        assert!(text.ends_with("line 998\nline 999\n"), "{text}");
        assert!(text.len() < 2000);
    }

    #[test]
    fn a_short_log_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = ConsoleLog::create(&path, 100).unwrap();
        fill(&mut log, 3);
        assert_eq!(log.finish(), (vec!["line 0".into(), "line 1".into(), "line 2".into()], None));
        assert_eq!(fs::read_to_string(path).unwrap(), "line 0\nline 1\nline 2\n");
    }

    #[test]
    fn nothing_is_written_through_a_link_and_an_earlier_log_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("log"), directory.path().join("other"));
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        fs::write(&other, "none of ours").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let mut log = ConsoleLog::create(&path, 100).unwrap();
        fill(&mut log, 1);
        assert_eq!((text(&other).as_str(), text(&path).as_str()), ("none of ours", "line 0\n"));
        // open(2) does not detect hard links.
        fs::remove_file(&path).unwrap();
        fs::hard_link(&other, &path).unwrap();
        let mut log = ConsoleLog::create(&path, 100).unwrap();
        fill(&mut log, 2);
        assert_eq!((text(&other).as_str(), text(&path).as_str()), ("none of ours", "line 0\nline 1\n"));
        // A dangling link must not create a file elsewhere.
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(directory.path().join("nowhere"), &path).unwrap();
        ConsoleLog::create(&path, 100).unwrap();
        assert!(!directory.path().join("nowhere").exists());
        assert!(ConsoleLog::create(directory.path(), 100).is_err());
    }

    #[test]
    fn a_full_disk_is_reported_and_the_tail_kept() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut log = ConsoleLog::new(full, 1000);
        fill(&mut log, 3);
        let (tail, problem) = log.finish();
        assert_eq!(tail.len(), 3);
        assert!(problem.unwrap().contains("No space left"), "the operating system's message");
    }
}

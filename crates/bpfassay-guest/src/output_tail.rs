// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the end of a program's output for messages, and the first error of a compiler.

use std::{
    fs::File,
    io::{self, Seek, Write},
    mem,
};

use bpfassay_protocol::compiler_error::is_compiler_error;

/// Largest size of the end that is kept, in bytes.
pub(crate) const OUTPUT_TAIL: usize = 2048;

/// How many bytes of an output are searched for the first error of a compiler. A tool that prints
/// for hours is not searched.
const SEARCHED: usize = 256 << 10;

/// Longest error line that is kept, in bytes.
const LONGEST_ERROR: usize = 512;

/// The end of a stream, and the first error of a compiler if it came before the end: later errors
/// follow from the first one. The end begins with a whole line unless that line is too long.
#[derive(Debug, Default)]
pub(crate) struct OutputTail {
    end: Vec<u8>,
    /// The number of bytes before `end`.
    dropped: usize,
    first_error: String,
}

impl OutputTail {
    /// Returns the tail of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut tail = Self::default();
        tail.push(bytes);
        tail
    }

    /// Appends the bytes that arrived next.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.end.extend_from_slice(bytes);
        let surplus = self.end.len().saturating_sub(OUTPUT_TAIL);
        if surplus == 0 {
            return;
        }
        // A line that is longer than half of the end is cut, not dropped.
        let line_end = self.end[surplus - 1..][..OUTPUT_TAIL / 2].iter().position(|&byte| byte == b'\n');
        let rest = self.end.split_off(surplus + line_end.unwrap_or(0));
        let dropped = mem::replace(&mut self.end, rest);
        if self.first_error.is_empty() && self.dropped < SEARCHED {
            self.first_error = first_error(&dropped).unwrap_or_default();
        }
        self.dropped = self.dropped.saturating_add(dropped.len());
    }

    /// Returns the end of the output.
    pub(crate) fn end(&self) -> &[u8] {
        &self.end
    }
}

impl Write for OutputTail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Display for OutputTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.first_error.is_empty() {
            writeln!(f, "{}\n…", self.first_error)?;
        }
        f.write_str(&String::from_utf8_lossy(&self.end))
    }
}

/// Returns the first error of a compiler in `text`, at most [`LONGEST_ERROR`] bytes of the line.
fn first_error(text: &[u8]) -> Option<String> {
    let lines = text.split(|&byte| byte == b'\n');
    let mut lines = lines.map(|line| String::from_utf8_lossy(line.get(..LONGEST_ERROR).unwrap_or(line)));
    lines.find(|line| is_compiler_error(line)).map(|line| line.trim().to_owned())
}

/// Returns the tail of a file that a program wrote.
pub(crate) fn of_file(file: &mut File) -> String {
    let mut tail = OutputTail::default();
    let read = file.rewind().and_then(|()| io::copy(file, &mut tail));
    // The text goes into the message of another error, which matters more than this one.
    read.map_or_else(|error| format!("(unreadable: {error})"), |_| tail.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_end_of_a_long_output_is_kept() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all("x".repeat(5000).as_bytes()).unwrap();
        file.write_all(b"no space left on device").unwrap();
        let end = of_file(&mut file);
        assert_eq!(end.len(), OUTPUT_TAIL);
        assert!(end.ends_with("no space left on device"));
        let mut tail = OutputTail::default();
        assert!(tail.end().is_empty());
        for part in ["x".repeat(5000).as_str(), "no space left", " on device"] {
            tail.push(part.as_bytes());
        }
        assert_eq!(tail.to_string(), end);
    }

    #[test]
    fn the_first_error_of_a_compiler_stays() {
        let warnings = "include/linux/fs.h:2438:2: warning: declaration does not declare anything\n".repeat(30);
        let first = "include/linux/ns_common.h:25:23: error: no member named 'ns_id' in 'struct ns_common'";
        let later = "include/linux/bpf.h:4218:15: error: use of undeclared identifier 'BPF_F_CPU'\n".repeat(60);
        let output = format!("{warnings}{first}\n{later}Failed to compile\n");
        for size in [1, 7, 100, 3000, output.len()] {
            let mut tail = OutputTail::default();
            output.as_bytes().chunks(size).for_each(|part| tail.push(part));
            let shown = tail.to_string();
            let (error, end) = shown.split_once("\n…\n").unwrap();
            assert_eq!(error, first, "in pieces of {size} bytes");
            assert!(end.starts_with("include/linux/bpf.h:4218:15: error: "), "a whole line: {end}");
            assert!(end.ends_with("Failed to compile\n") && end.len() <= OUTPUT_TAIL);
        }
        assert_eq!(OutputTail::of(format!("{first}\nFailed").as_bytes()).to_string(), format!("{first}\nFailed"));
    }

    #[test]
    fn a_tool_that_prints_for_hours_is_not_searched() {
        let mut tail = OutputTail::of(&b"10:00:01 cat 17\n".repeat(SEARCHED / 10));
        tail.push(b"a.c:1:1: error: late\n");
        tail.push(&b"10:00:01 cat 17\n".repeat(1000));
        assert!(!tail.to_string().contains("late"));
    }

    proptest! {
        #[test]
        fn the_end_is_the_end_of_the_output(parts in proptest::collection::vec("[a-z\n]{0,900}", 0..12)) {
            let mut tail = OutputTail::default();
            parts.iter().for_each(|part| tail.push(part.as_bytes()));
            let (output, end) = (parts.concat(), std::str::from_utf8(tail.end()).unwrap());
            prop_assert!(output.ends_with(end) && end.len() <= OUTPUT_TAIL);
            let before = output.strip_suffix(end).unwrap();
            prop_assert!(before.is_empty() || before.ends_with('\n') || end.len() == OUTPUT_TAIL);
            prop_assert!(output.is_empty() || !end.is_empty());
        }
    }
}

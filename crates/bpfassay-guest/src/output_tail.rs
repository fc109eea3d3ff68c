// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the end of a program's output for messages.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
};

/// Size of the end that is kept, in bytes.
pub(crate) const OUTPUT_TAIL: usize = 2048;

/// The end of a stream.
#[derive(Debug, Default)]
pub(crate) struct OutputTail(Vec<u8>);

impl OutputTail {
    /// Appends the bytes that arrived next.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(last(bytes));
        let surplus = self.0.len().saturating_sub(OUTPUT_TAIL);
        self.0.drain(..surplus);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Display for OutputTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// Returns the end of `bytes`, at most [`OUTPUT_TAIL`] bytes.
pub(crate) fn last(bytes: &[u8]) -> &[u8] {
    bytes.get(bytes.len().saturating_sub(OUTPUT_TAIL)..).unwrap_or_default()
}

/// Returns the end of the text in a file that a program wrote.
pub(crate) fn of_file(file: &mut File) -> String {
    let mut read = || -> io::Result<Vec<u8>> {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(OUTPUT_TAIL as u64)))?;
        let mut end = Vec::new();
        file.take(OUTPUT_TAIL as u64).read_to_end(&mut end)?;
        Ok(end)
    };
    // The text goes into the message of another error, which matters more than this one.
    read().map_or_else(|error| format!("(unreadable: {error})"), |end| String::from_utf8_lossy(&end).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

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
        assert!(tail.bytes().is_empty());
        for part in ["x".repeat(5000).as_str(), "no space left", " on device"] {
            tail.push(part.as_bytes());
        }
        assert_eq!(tail.to_string(), end);
    }
}

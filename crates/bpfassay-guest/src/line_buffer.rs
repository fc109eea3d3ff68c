// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts a byte stream into lines of bounded length.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read},
};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// There may be more later.
    Open,
    /// The peer closed the stream. A last line without a newline is dropped.
    Closed,
}

/// Why a stream is not a sequence of lines.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// A line is longer than allowed.
    #[error("wrote a line of more than {0} bytes")]
    TooLong(usize),
    /// The stream cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] std::io::Error),
}

/// Accepts bytes as they arrive, and returns lines.
#[derive(Debug)]
pub(crate) struct Lines {
    longest: usize,
    partial: Vec<u8>,
    whole: VecDeque<Vec<u8>>,
}

impl Lines {
    /// Makes a reader of lines of at most `longest` bytes.
    pub(crate) const fn new(longest: usize) -> Self {
        Self { longest, partial: Vec::new(), whole: VecDeque::new() }
    }

    /// Returns the next whole line, without the newline.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        self.whole.pop_front()
    }

    /// Reads once from `stream` and keeps the bytes.
    pub(crate) fn take(&mut self, stream: &mut impl Read) -> Result<Taken, LineError> {
        let mut buffer = [0; 16 << 10];
        match stream.read(&mut buffer) {
            Ok(0) => Ok(Taken::Closed),
            Ok(length) => self.push(&buffer[..length]).map(|()| Taken::Open),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(Taken::Open),
            Err(error) => Err(error.into()),
        }
    }

    fn push(&mut self, mut bytes: &[u8]) -> Result<(), LineError> {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            self.extend(&bytes[..end])?;
            self.whole.push_back(std::mem::take(&mut self.partial));
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes)
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), LineError> {
        if self.partial.len() + bytes.len() > self.longest {
            return Err(LineError::TooLong(self.longest));
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_refused_before_it_ends() {
        let mut lines = Lines::new(4);
        lines.push(b"1234\n12").unwrap();
        assert_eq!(lines.next().unwrap(), b"1234");
        assert!(matches!(lines.push(b"345"), Err(LineError::TooLong(4))));
    }

    #[test]
    fn the_end_of_the_stream_is_reported() {
        let mut lines = Lines::new(10);
        let mut stream = &b"one\ntwo"[..];
        assert_eq!(lines.take(&mut stream).unwrap(), Taken::Open);
        assert_eq!(lines.take(&mut stream).unwrap(), Taken::Closed);
        assert_eq!(lines.next().unwrap(), b"one");
        assert_eq!(lines.next(), None);
    }

    proptest! {
        #[test]
        fn lines_survive_any_fragmentation(texts in proptest::collection::vec("[^\n]{0,20}", 0..8), cut in 1usize..9) {
            let stream: String = texts.iter().map(|text| format!("{text}\n")).collect();
            let mut lines = Lines::new(200);
            for piece in stream.as_bytes().chunks(cut) {
                lines.push(piece).unwrap();
            }
            let received: Vec<_> = std::iter::from_fn(|| lines.next()).collect();
            prop_assert_eq!(received, texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>());
        }
    }
}

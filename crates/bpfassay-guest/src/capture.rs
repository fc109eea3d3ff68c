// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures the output of a workload of type `command`: standard output up to a limit, and the end
//! of standard error.

use std::{
    io::{self, ErrorKind, PipeReader, PipeWriter, Read},
    os::fd::{AsFd, BorrowedFd},
};

use bpfassay_protocol::job::MAX_OUTPUT;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::{
    error::{Error, Result},
    output_tail::OutputTail,
};

/// The standard output and standard error of a program.
#[derive(Debug)]
pub(crate) struct Capture {
    /// `None` after the program closed it.
    output: Option<PipeReader>,
    error: Option<PipeReader>,
    text: Vec<u8>,
    last: OutputTail,
}

impl Capture {
    /// Creates pipes for a program. Returns the reading ends, then the program's standard output
    /// and standard error.
    pub(crate) fn open() -> io::Result<(Self, PipeWriter, PipeWriter)> {
        let (output, standard_output) = io::pipe()?;
        let (error, standard_error) = io::pipe()?;
        for reader in [&output, &error] {
            fcntl_setfl(reader, fcntl_getfl(reader)? | OFlags::NONBLOCK)?;
        }
        let ours = Self { output: Some(output), error: Some(error), text: Vec::new(), last: OutputTail::default() };
        Ok((ours, standard_output, standard_error))
    }

    /// Returns the open pipes, for poll(2).
    pub(crate) fn streams(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.output, &self.error].into_iter().flatten().map(AsFd::as_fd)
    }

    /// Reads what has arrived. Returns whether standard output is still within [`MAX_OUTPUT`].
    pub(crate) fn take(&mut self) -> Result<bool> {
        let Self { output, error, text, last } = self;
        drain(error, |bytes| {
            last.push(bytes);
            true
        })?;
        drain(output, |bytes| {
            text.extend_from_slice(bytes);
            text.len() <= MAX_OUTPUT
        })
    }

    /// Returns the tail of standard error, or of standard output if the program wrote nothing to
    /// standard error.
    pub(crate) fn output_tail(&self) -> String {
        match self.last.end().is_empty() {
            true => OutputTail::of(&self.text).to_string(),
            false => self.last.to_string(),
        }
    }

    /// Returns all of standard output.
    pub(crate) fn into_text(self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

/// Passes what is available to `keep` until `keep` returns `false`. Returns whether it never did.
fn drain(stream: &mut Option<PipeReader>, mut keep: impl FnMut(&[u8]) -> bool) -> Result<bool> {
    let mut buffer = [0; 16 << 10];
    while let Some(open) = stream {
        match open.read(&mut buffer) {
            Ok(0) => *stream = None,
            Ok(length) if keep(&buffer[..length]) => {}
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::system("read the workload's output")(error)),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, process::Command};

    use super::*;
    use crate::output_tail::OUTPUT_TAIL;

    #[test]
    fn standard_output_is_kept_whole_and_the_tail_of_standard_error() {
        let (mut capture, output, error) = Capture::open().unwrap();
        let script = "echo '{\"a\": 1}'; for i in $(seq 1000); do echo complaint $i >&2; done; exec >&-";
        Command::new("sh").args(["-c", script]).stdout(output).stderr(error).status().unwrap();
        assert!(capture.take().unwrap());
        assert_eq!(capture.streams().count(), 0);
        let tail = capture.output_tail();
        assert!((OUTPUT_TAIL / 2..=OUTPUT_TAIL).contains(&tail.len()) && tail.ends_with("complaint 1000\n"), "{tail}");
        assert_eq!(capture.into_text(), "{\"a\": 1}\n");
    }

    #[test]
    fn a_program_that_never_stops_writing_is_reported() {
        let (mut capture, mut output, error) = Capture::open().unwrap();
        drop(error);
        let mut written = 0;
        while {
            output.write_all(&[b'x'; 32 << 10]).unwrap();
            written += 32 << 10;
            capture.take().unwrap()
        } {
            assert!(written <= MAX_OUTPUT, "{written}");
        }
        assert!(written > MAX_OUTPUT);
        assert_eq!(capture.output_tail().len(), OUTPUT_TAIL);
    }

    #[test]
    fn reading_does_not_block_where_nothing_was_written() {
        let (mut capture, output, _error) = Capture::open().unwrap();
        assert!(capture.take().unwrap());
        assert_eq!(capture.streams().count(), 2);
        drop(output);
        assert!(capture.take().unwrap());
        assert_eq!((capture.streams().count(), capture.output_tail()), (1, String::new()));
    }
}

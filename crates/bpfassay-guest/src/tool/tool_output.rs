// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tool's standard output and standard error, as pieces with the time of arrival, bounded.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    os::fd::{AsFd, BorrowedFd},
    process::ChildStderr,
};

use bpfassay_protocol::{
    tool_job::{MAX_CAPTURED, MAX_PIECES, OutputPiece, Reference, Source, Stream},
    tracer_messages::{Refusal, TracerLine},
};
use regex_lite::Regex;
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};

use crate::{
    error::{Error, Result},
    output_tail::OutputTail,
    steps::monotonic_ns,
};

/// Largest number of bytes that are read from a stream at once, so that a tool that never pauses
/// does not block the agent.
const AT_ONCE: usize = 256 << 10;

/// Longest line in which the ready line is searched, in bytes.
const MAX_READY_LINE: usize = 64 << 10;

/// Longest incomplete line in which the ready line is searched, in bytes: a prompt. Each piece of
/// output causes a search of the whole line, and a piece can be a single byte.
const MAX_PROMPT: usize = 256;

/// The line that shows that the tool is ready.
#[derive(Debug)]
pub(crate) struct ReadyPattern {
    pattern: Regex,
    stream: Option<Stream>,
    /// The incomplete last line of each stream.
    begun: [Vec<u8>; 2],
    seen: bool,
}

impl ReadyPattern {
    pub(crate) fn new(pattern: &str, stream: Option<Stream>) -> std::result::Result<Self, regex_lite::Error> {
        Ok(Self { pattern: Regex::new(pattern)?, stream, begun: Default::default(), seen: false })
    }

    fn take(&mut self, source: Source, text: &[u8]) {
        let (of, begun) = match source {
            Source::Output => (Stream::Stdout, &mut self.begun[0]),
            Source::Error => (Stream::Stderr, &mut self.begun[1]),
            Source::Endpoint | Source::NoAnswer => return,
        };
        if self.seen || self.stream.is_some_and(|stream| stream != of) {
            return;
        }
        let shows = |line: &[u8]| self.pattern.is_match(&String::from_utf8_lossy(line));
        let mut rest = text;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            begun.extend_from_slice(&rest[..end]);
            self.seen |= begun.len() <= MAX_READY_LINE && shows(begun);
            begun.clear();
            rest = &rest[end + 1..];
        }
        // A longer line does not match, because the part that is kept exceeds the bound.
        let room = (MAX_READY_LINE + 1).saturating_sub(begun.len()).min(rest.len());
        begun.extend_from_slice(&rest[..room]);
        // An incomplete line can be a prompt.
        self.seen |= begun.len() <= MAX_PROMPT && shows(begun);
    }
}

/// A tool's output so far.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Whether pieces are kept.
    captured: bool,
    ready: Option<ReadyPattern>,
    pieces: Vec<OutputPiece>,
    bytes: usize,
    dropped: u64,
    tail: OutputTail,
}

impl Output {
    pub(crate) fn new(captured: bool, ready: Option<ReadyPattern>) -> Self {
        Self { captured, ready, ..Self::default() }
    }

    /// Appends `text`, which came from `source` at `monotonic_ns`.
    pub(crate) fn take(&mut self, monotonic_ns: u64, source: Source, text: &[u8], reference: Option<Reference>) {
        // A message about the endpoint was not written by the tool.
        if matches!(source, Source::Output | Source::Error) {
            self.tail.push(text);
        }
        if let Some(ready) = &mut self.ready {
            ready.take(source, text);
        }
        if !self.captured {
            return;
        }
        if self.bytes + text.len() > MAX_CAPTURED || self.pieces.len() >= MAX_PIECES {
            self.dropped = self.dropped.saturating_add(text.len() as u64);
            return;
        }
        self.bytes += text.len();
        let text = String::from_utf8_lossy(text).into_owned();
        self.pieces.push(OutputPiece { monotonic_ns, source, endpoint: 0, text, reference: reference.map(Box::new) });
    }

    /// Appends the endpoints' answers, in the order of the endpoints. They are one report, which is
    /// kept whole or not at all.
    pub(crate) fn take_answers(&mut self, monotonic_ns: u64, bodies: &[Vec<u8>], mut reference: Option<Reference>) {
        if !self.captured {
            return;
        }
        let length = bodies.iter().fold(0, |sum: usize, body| sum.saturating_add(body.len()));
        if self.bytes.saturating_add(length) > MAX_CAPTURED || self.pieces.len() + bodies.len() > MAX_PIECES {
            self.dropped = self.dropped.saturating_add(length as u64);
            return;
        }
        self.bytes += length;
        for (endpoint, body) in (0..).zip(bodies) {
            let text = String::from_utf8_lossy(body).into_owned();
            // The reference belongs to the whole report, and is kept with its first piece.
            let reference = reference.take().map(Box::new);
            self.pieces.push(OutputPiece { monotonic_ns, source: Source::Endpoint, endpoint, text, reference });
        }
    }

    /// Returns whether the ready line has arrived.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.as_ref().is_some_and(|ready| ready.seen)
    }

    /// Returns the refusal that the tool wrote to standard output as one line of JSON, as the
    /// bundled loader of bare objects does.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let output = self.pieces.iter().filter(|piece| piece.source == Source::Output);
        let text: String = output.map(|piece| piece.text.as_str()).collect();
        text.lines().find_map(|line| match serde_json::from_str(line) {
            Ok(TracerLine::Refused(refusal)) => Some(refusal),
            _ => None,
        })
    }

    pub(super) fn count(&self) -> usize {
        self.pieces.len()
    }

    /// Adds to the last piece what the reference had counted before and after it.
    pub(super) fn add_reference(&mut self, reference: Reference) {
        if let Some(last) = self.pieces.last_mut() {
            last.reference = Some(Box::new(reference));
        }
    }

    /// Returns the tail of the output, for messages.
    pub(super) fn tail(&self) -> &OutputTail {
        &self.tail
    }

    /// Returns the pieces, and how many bytes were dropped.
    pub(crate) fn into_pieces(self) -> (Vec<OutputPiece>, u64) {
        (self.pieces, self.dropped)
    }
}

/// The two streams of a tool: its terminal and standard error.
#[derive(Debug)]
pub(super) struct Streams {
    output: Option<File>,
    error: Option<ChildStderr>,
}

impl Streams {
    pub(super) fn new(output: Option<File>, error: Option<ChildStderr>) -> Result<Self> {
        for stream in [output.as_ref().map(AsFd::as_fd), error.as_ref().map(AsFd::as_fd)].into_iter().flatten() {
            fcntl_getfl(stream)
                .and_then(|flags| fcntl_setfl(stream, flags | OFlags::NONBLOCK))
                .map_err(Error::system("read a tool's output"))?;
        }
        Ok(Self { output, error })
    }

    /// Returns the open streams, for poll(2).
    pub(super) fn open(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.output.as_ref().map(AsFd::as_fd), self.error.as_ref().map(AsFd::as_fd)].into_iter().flatten()
    }

    /// Returns what has arrived since the last call, by stream. Closed streams are dropped.
    pub(super) fn take(&mut self) -> Result<Vec<(u64, Source, Vec<u8>)>> {
        let mut taken = Vec::new();
        // Standard error first: tools report there that they are ready, before they count.
        drain(&mut self.error, Source::Error, &mut taken)?;
        drain(&mut self.output, Source::Output, &mut taken)?;
        Ok(taken)
    }
}

fn drain<S: Read>(stream: &mut Option<S>, source: Source, taken: &mut Vec<(u64, Source, Vec<u8>)>) -> Result<()> {
    let Some(open) = stream else { return Ok(()) };
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 << 10];
    let mut closed = false;
    while bytes.len() < AT_ONCE {
        match open.read(&mut buffer) {
            Ok(0) => {
                closed = true;
                break;
            }
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // A read from a terminal that no process has open any more fails with EIO (`n_tty_read`
            // after `tty_hung_up_p` or `TTY_OTHER_CLOSED`, drivers/tty/n_tty.c, 6.12).
            Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) => {
                closed = true;
                break;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::system("read a tool's output")(error)),
        }
    }
    if closed {
        *stream = None;
    }
    if !bytes.is_empty() {
        taken.push((monotonic_ns()?, source, bytes));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::output_tail::OUTPUT_TAIL;

    #[test]
    fn output_is_kept_with_its_time_and_source() {
        let mut output = Output::new(true, Some(ReadyPattern::new("^Read.$", None).unwrap()));
        output.take(1, Source::Error, b"Attaching 3 pro", None);
        output.take(2, Source::Output, b"\xff 1\n", None);
        assert!(!output.is_ready());
        output.take(3, Source::Error, b"bes...\nRea", None);
        output.take(3, Source::Error, b"dy\n", None);
        assert!(output.is_ready());
        assert!(output.tail().end().ends_with(b"Ready\n"));
        let (pieces, dropped) = output.into_pieces();
        assert_eq!((pieces.len(), dropped), (4, 0));
        assert_eq!(
            (pieces[1].monotonic_ns, pieces[1].source, pieces[1].text.as_str()),
            (2, Source::Output, "\u{fffd} 1\n")
        );
    }

    #[test]
    fn a_long_line_that_comes_byte_by_byte_is_not_searched_at_each() {
        // This would take minutes with a search at each byte.
        let mut output = Output::new(false, Some(ReadyPattern::new("a+b?c", None).unwrap()));
        for _ in 0..MAX_READY_LINE - 1 {
            output.take(1, Source::Output, b"a", None);
        }
        output.take(1, Source::Output, b"c", None);
        assert!(!output.is_ready(), "a prompt is no longer than {MAX_PROMPT} bytes");
        output.take(1, Source::Output, b"\n", None);
        assert!(output.is_ready());
        let mut output = Output::new(false, Some(ReadyPattern::new("> $", None).unwrap()));
        output.take(1, Source::Output, &[&[b'x'; MAX_READY_LINE + 2][..], b"> \n"].concat(), None);
        assert!(!output.is_ready(), "longer than any line of readiness");
        output.take(1, Source::Output, b"ready> ", None);
        assert!(output.is_ready(), "a prompt");
    }

    #[test]
    fn a_tool_that_never_stops_writing_is_cut_and_counted() {
        let mut output = Output::new(true, None);
        for time in 0..20 {
            output.take(time, Source::Output, &[b'x'; 100 << 10], None);
        }
        let (pieces, dropped) = output.into_pieces();
        let kept: usize = pieces.iter().map(|piece| piece.text.len()).sum();
        assert!(kept <= MAX_CAPTURED);
        assert_eq!(kept as u64 + dropped, 20 * (100 << 10));
    }

    #[test]
    fn output_that_is_not_captured_leaves_its_tail_only() {
        let mut output = Output::new(false, None);
        output.take(1, Source::Error, &[b'x'; 5000], None);
        assert_eq!(output.tail().end().len(), OUTPUT_TAIL);
        assert_eq!(output.into_pieces(), (Vec::new(), 0));
    }

    #[test]
    fn a_ready_line_is_searched_for_on_its_stream_and_line_by_line() {
        let shown = |stream, pieces: &[(Source, &str)]| {
            let mut output = Output::new(false, Some(ReadyPattern::new("3 probes$", stream).unwrap()));
            for (source, text) in pieces {
                output.take(0, *source, text.as_bytes(), None);
            }
            output.is_ready()
        };
        assert!(shown(None, &[(Source::Error, "3 pro"), (Source::Output, "x\n"), (Source::Error, "bes\nmore\n")]));
        assert!(!shown(Some(Stream::Stdout), &[(Source::Error, "3 probes\n")]));
        assert!(!shown(None, &[(Source::Output, "3\n probes\n"), (Source::Endpoint, "3 probes\n")]));
        assert!(ReadyPattern::new("(", None).is_err());
    }

    #[test]
    fn a_refusal_in_json_is_understood() {
        let mut output = Output::new(true, None);
        output.take(1, Source::Output, b"hello\n{\"type\":\"refused\",\"step\":\"attach\",\"program\":\"p\",", None);
        output.take(1, Source::Output, b"\"errno\":2,\"message\":\"no such function\",\"verifier\":null}\n", None);
        assert_eq!(output.refusal().unwrap().errno, Some(2));
        assert_eq!(Output::new(true, None).refusal(), None);
    }

    #[test]
    fn streams_end_one_by_one() {
        let (ours, theirs) = crate::tool::terminal::open(0).unwrap();
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "echo out; exec 1>&-; echo err >&2"]).stdout(theirs).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut streams = Streams::new(Some(ours), child.stderr.take()).unwrap();
        child.wait().unwrap();
        let taken: Vec<_> = streams.take().unwrap().into_iter().map(|(_, source, bytes)| (source, bytes)).collect();
        // The terminal is raw: line ends stay as they are.
        assert_eq!(taken, [(Source::Error, b"err\n".to_vec()), (Source::Output, b"out\n".to_vec())]);
        assert_eq!(streams.open().count(), 0);
    }

    proptest! {
        #[test]
        fn any_output_is_survived(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..50)) {
            let mut output = Output::new(true, None);
            for chunk in &chunks {
                output.take(0, Source::Output, chunk, None);
            }
            prop_assert!(output.tail().end().len() <= OUTPUT_TAIL);
            prop_assert_eq!(output.into_pieces().0.len(), chunks.len());
        }
    }
}

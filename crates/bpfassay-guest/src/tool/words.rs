//! What a tool says: its standard output and standard error, as pieces with the time of arrival, bounded.

use std::{
    io::{ErrorKind, Read},
    os::fd::{AsFd, BorrowedFd},
    process::{ChildStderr, ChildStdout},
};

use bpfassay_protocol::{
    tool::{MAX_CAPTURED, MAX_PIECES, Piece, Source},
    tracer::Sample,
};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::{
    error::{Error, Result},
    steps::monotonic_ns,
};

/// How much of the end of a tool's words is kept for messages, in bytes.
const LAST_WORDS: usize = 2048;

/// Most bytes taken from a stream at once, so that a tool that never pauses does not hold its reader.
const AT_ONCE: usize = 256 << 10;

/// A tool's words so far.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// Whether pieces are kept at all.
    captured: bool,
    pieces: Vec<Piece>,
    bytes: usize,
    dropped: u64,
    last: Vec<u8>,
}

impl Words {
    pub(super) fn new(captured: bool) -> Self {
        Self { captured, ..Self::default() }
    }

    /// Takes in `text`, which came from `source` at `monotonic_ns`.
    pub(super) fn take(&mut self, monotonic_ns: u64, source: Source, text: &[u8], witness: Option<Sample>) {
        self.last.extend_from_slice(text);
        let surplus = self.last.len().saturating_sub(LAST_WORDS);
        self.last.drain(..surplus);
        if !self.captured {
            return;
        }
        if self.bytes + text.len() > MAX_CAPTURED || self.pieces.len() >= MAX_PIECES {
            self.dropped = self.dropped.saturating_add(text.len() as u64);
            return;
        }
        self.bytes += text.len();
        let text = String::from_utf8_lossy(text).into_owned();
        self.pieces.push(Piece { monotonic_ns, source, text, witness: witness.map(Box::new) });
    }

    /// Whether a line with `wanted` in it has come, on standard output or standard error.
    pub(super) fn contain(&self, wanted: &str) -> bool {
        let of = |source: Source| {
            let text: String =
                self.pieces.iter().filter(|piece| piece.source == source).map(|piece| piece.text.as_str()).collect();
            text.lines().any(|line| line.contains(wanted))
        };
        of(Source::Output) || of(Source::Error)
    }

    /// The end of them, for messages.
    pub(super) fn last(&self) -> String {
        String::from_utf8_lossy(&self.last).into_owned()
    }

    /// All that was kept, and how many bytes were not.
    pub(super) fn into_pieces(self) -> (Vec<Piece>, u64) {
        (self.pieces, self.dropped)
    }
}

/// The two streams of a tool.
#[derive(Debug)]
pub(super) struct Streams {
    output: Option<ChildStdout>,
    error: Option<ChildStderr>,
}

impl Streams {
    pub(super) fn new(output: Option<ChildStdout>, error: Option<ChildStderr>) -> Result<Self> {
        for stream in [output.as_ref().map(AsFd::as_fd), error.as_ref().map(AsFd::as_fd)].into_iter().flatten() {
            fcntl_getfl(stream)
                .and_then(|flags| fcntl_setfl(stream, flags | OFlags::NONBLOCK))
                .map_err(Error::system("listen to a tool"))?;
        }
        Ok(Self { output, error })
    }

    /// Those that are open, to be waited for.
    pub(super) fn open(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.output.as_ref().map(AsFd::as_fd), self.error.as_ref().map(AsFd::as_fd)].into_iter().flatten()
    }

    /// What has come since the last time, by stream; streams that were closed are open no more.
    pub(super) fn take(&mut self) -> Result<Vec<(u64, Source, Vec<u8>)>> {
        let mut taken = Vec::new();
        // Standard error first: what is ready is told there before it counts.
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
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::system("listen to a tool")(error)),
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

    #[test]
    fn words_are_kept_with_their_time_and_source() {
        let mut words = Words::new(true);
        words.take(1, Source::Error, b"Attaching 3 pro", None);
        words.take(2, Source::Output, b"\xff 1\n", None);
        words.take(3, Source::Error, b"bes...\nReady\n", None);
        assert!(words.contain("3 probes") && words.contain("Ready") && !words.contain("ready"));
        assert!(words.last().ends_with("Ready\n"));
        let (pieces, dropped) = words.into_pieces();
        assert_eq!((pieces.len(), dropped), (3, 0));
        assert_eq!(
            (pieces[1].monotonic_ns, pieces[1].source, pieces[1].text.as_str()),
            (2, Source::Output, "\u{fffd} 1\n")
        );
    }

    #[test]
    fn a_tool_that_never_stops_talking_is_cut_and_counted() {
        let mut words = Words::new(true);
        for time in 0..20 {
            words.take(time, Source::Output, &[b'x'; 100 << 10], None);
        }
        let (pieces, dropped) = words.into_pieces();
        let kept: usize = pieces.iter().map(|piece| piece.text.len()).sum();
        assert!(kept <= MAX_CAPTURED);
        assert_eq!(kept as u64 + dropped, 20 * (100 << 10));
    }

    #[test]
    fn words_that_nobody_wants_leave_their_end_only() {
        let mut words = Words::new(false);
        words.take(1, Source::Error, &[b'x'; 5000], None);
        assert_eq!(words.last().len(), LAST_WORDS);
        assert_eq!(words.into_pieces(), (Vec::new(), 0));
    }

    #[test]
    fn streams_end_one_by_one() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "echo out; exec 1>&-; echo err >&2"])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut streams = Streams::new(child.stdout.take(), child.stderr.take()).unwrap();
        child.wait().unwrap();
        let taken: Vec<_> = streams.take().unwrap().into_iter().map(|(_, source, bytes)| (source, bytes)).collect();
        assert_eq!(taken, [(Source::Error, b"err\n".to_vec()), (Source::Output, b"out\n".to_vec())]);
        assert_eq!(streams.open().count(), 0);
    }

    proptest! {
        #[test]
        fn any_words_are_survived(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..50)) {
            let mut words = Words::new(true);
            for chunk in &chunks {
                words.take(0, Source::Output, chunk, None);
            }
            prop_assert!(words.last.len() <= LAST_WORDS);
            prop_assert_eq!(words.into_pieces().0.len(), chunks.len());
        }
    }
}

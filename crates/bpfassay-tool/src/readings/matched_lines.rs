// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assembles the lines of one stream from captured pieces.

use super::MAX_LINE;
use crate::{Stream, recorded_output::CapturedPiece};

/// A line, and the time when its end was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TimedLine {
    pub(super) at_ns: u64,
    pub(super) text: String,
}

/// The non-empty lines of `stream`, without `\r` and terminal control sequences. Text after the
/// last line feed is also a line. Lines longer than [`MAX_LINE`] are cut.
pub(super) fn lines(pieces: &[CapturedPiece], stream: Stream) -> impl Iterator<Item = TimedLine> {
    let mut pieces = pieces.iter().filter(move |piece| piece.stream == stream);
    let mut rest: &[u8] = &[];
    let mut at_ns = 0;
    let mut line: Vec<u8> = Vec::new();
    let mut ended = false;
    std::iter::from_fn(move || {
        loop {
            if let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                take(&mut line, &rest[..end]);
                rest = &rest[end + 1..];
            } else {
                take(&mut line, rest);
                match pieces.next() {
                    Some(piece) => {
                        (rest, at_ns) = (&piece.bytes, piece.at_ns);
                        continue;
                    }
                    None if ended => return None,
                    None => (rest, ended) = (&[], true),
                }
            }
            let text = plain(&std::mem::take(&mut line));
            if !text.trim().is_empty() {
                return Some(TimedLine { at_ns, text });
            }
        }
    })
}

fn take(line: &mut Vec<u8>, part: &[u8]) {
    let room = MAX_LINE.saturating_sub(line.len());
    line.extend(&part[..part.len().min(room)]);
}

/// Removes carriage returns and control sequences (ECMA-48: ESC `[`, parameters, one final byte
/// from `@` to `~`).
fn plain(bytes: &[u8]) -> String {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        match byte {
            0x1b if rest.next_if_eq(&b'[').is_some() => {
                while rest.next().is_some_and(|byte| !(0x40..=0x7e).contains(&byte)) {}
            }
            0x1b | b'\r' => {}
            byte => kept.push(byte),
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_and_cleaned() {
        let piece = |at_ns, stream, text: &str| CapturedPiece { at_ns, stream, bytes: text.as_bytes().to_vec() };
        let pieces = [
            piece(1, Stream::Stdout, "a\r\n\r\nb"),
            piece(2, Stream::Stderr, "x\n"),
            piece(3, Stream::Stdout, "c\n\u{1b}[H\u{1b}[2J\u{1b}[3Jd\nlast"),
        ];
        let found: Vec<_> = lines(&pieces, Stream::Stdout).map(|line| (line.at_ns, line.text)).collect();
        assert_eq!(found, [(1, "a".to_owned()), (3, "bc".to_owned()), (3, "d".to_owned()), (3, "last".to_owned())]);
        assert_eq!(lines(&pieces, Stream::Stderr).count(), 1);
        let long = [piece(1, Stream::Stdout, &"x".repeat(MAX_LINE + 5)), piece(2, Stream::Stdout, "y\nz")];
        let lengths: Vec<_> = lines(&long, Stream::Stdout).map(|line| line.text.len()).collect();
        assert_eq!(lengths, [MAX_LINE, 1]);
    }
}

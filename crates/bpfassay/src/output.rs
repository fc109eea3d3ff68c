// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output and standard error: everything that the command prints goes through
//! [`EscapedStream`].
//!
//! Kernels, guests, tools, studies and foreign results wrote much of what is printed. Two
//! mechanisms keep a terminal from obeying it:
//!
//! - Foreign text is escaped where it is inserted ([`bpfassay_results::plain`]): by the renderers,
//!   by [`log`] for fields of messages, by [`report`] for errors, and by the lines of progress.
//! - [`EscapedStream`] passes no control character, so it escapes what the first mechanism missed.
//!   If the command has colours, the few sequences that set them pass; foreign text has no
//!   sequences left at this point.
//!
//! The exception is the guest's console under `bpfassay shell`, which is raw by nature.

mod bar;
mod frames;
mod log;
mod report;

use std::{
    io::{self, IsTerminal, Stderr, Stdout, Write},
    path::Path,
};

use bpfassay_results::plain;

pub(crate) use self::{bar::Bar, frames::InvalidFile, log::log_to_stderr, report::print_report};

/// A stream that passes text, line feeds and tabs. Everything else is shown as a number.
#[derive(Debug)]
pub(crate) struct EscapedStream<W> {
    stream: W,
    /// Whether the sequences of [`is_ours`] pass.
    colours: bool,
}

impl<W: Write> Write for EscapedStream<W> {
    /// Filters each call separately: a sequence or a character that is cut in the middle is
    /// escaped, never passed.
    ///
    /// # Errors
    /// The setting of the stream. It is then unknown how much of `bytes` was written.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write_all(filtered(bytes, self.colours).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl<W> EscapedStream<W> {
    /// Returns the stream, to query it but not to write to it.
    pub(crate) fn into_inner(self) -> W {
        self.stream
    }
}

#[allow(clippy::disallowed_methods, reason = "the only way to it")]
pub(crate) fn stdout() -> EscapedStream<Stdout> {
    EscapedStream { stream: io::stdout(), colours: false }
}

#[allow(clippy::disallowed_methods, reason = "the only way to it")]
pub(crate) fn stderr() -> EscapedStream<Stderr> {
    EscapedStream { stream: io::stderr(), colours: false }
}

/// Returns standard error, with colours if it supports them: only for text whose foreign parts are
/// already escaped.
fn coloured_stderr() -> EscapedStream<Stderr> {
    let plain = stderr();
    EscapedStream { colours: colours(&plain.stream), ..plain }
}

/// Whether `stream` may have colours: <https://no-color.org>.
fn colours(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    stream.is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// Whether standard output can show symbols beyond ASCII: whether the locale has UTF-8.
pub(crate) fn takes_symbols() -> bool {
    let set = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set).unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Formats a path for output: on one line, with bytes that are not text as numbers.
pub(crate) fn path(path: &Path) -> String {
    plain::bytes(path.as_os_str().as_encoded_bytes())
}

/// Returns `bytes` as [`EscapedStream`] passes them on.
fn filtered(bytes: &[u8], colours: bool) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) = rest.find(|c| plain::is_hazard(c) && c != '\n' && c != '\t') {
            let (before, from) = rest.split_at(at);
            shown.push_str(before);
            let ours = if colours { our_sequence(from) } else { None };
            rest = match (ours, from.chars().next()) {
                (Some(length), _) => {
                    let (sequence, after) = from.split_at(length);
                    shown.push_str(sequence);
                    after
                }
                (None, Some(c)) => {
                    plain::push_escaped(&mut shown, c);
                    &from[c.len_utf8()..]
                }
                (None, None) => "",
            };
        }
        shown.push_str(rest);
        if !chunk.invalid().is_empty() {
            shown.push_str(&plain::bytes(chunk.invalid()));
        }
    }
    shown
}

/// Returns the length of the sequence at the start of `text`, if it sets one of our colours.
fn our_sequence(text: &str) -> Option<usize> {
    let (numbers, _) = text.strip_prefix("\x1b[")?.split_once('m')?;
    let is_ours = numbers.len() <= 16 && numbers.split(';').all(is_ours);
    is_ours.then_some("\x1b[".len() + numbers.len() + "m".len())
}

/// Attributes of [`tracing_subscriber`], [`miette`] and [`clap`]: bold, dim, italic, underlined,
/// and colours of letters. None of them hides text, makes it blink, or gives it a background.
fn is_ours(number: &str) -> bool {
    matches!(number.parse::<u8>(), Ok(0..=4 | 22..=24 | 30..=37 | 39 | 90..=97)) && !number.starts_with('+')
}

/// Prints clap's answer to the command line: help, or the error. The answer quotes the arguments
/// between its own colours; if an argument has control characters, the answer gets no colours.
pub(crate) fn print_clap(answer: &clap::Error) {
    let rendered = answer.render();
    let is_safe = std::env::args_os().all(|argument| !argument.to_string_lossy().contains(plain::is_hazard));
    let text = |colours: bool| if colours && is_safe { rendered.ansi().to_string() } else { rendered.to_string() };
    // There is no way to report that the stream is closed; the exit code remains.
    let _ = if answer.use_stderr() {
        let mut screen = coloured_stderr();
        screen.colours &= is_safe;
        screen.write_all(text(screen.colours).as_bytes())
    } else {
        let mut screen = stdout();
        screen.colours = is_safe && colours(&screen.stream);
        screen.write_all(text(screen.colours).as_bytes()).and_then(|()| screen.flush())
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequences that a terminal obeys: a title, a cleared screen, a link, the clipboard, a
    /// question that it answers by typing, C1, and so on.
    const SEQUENCES: [&[u8]; 10] = [
        b"\x1b]0;title\x07",
        b"\x1b[2J",
        b"\x1b]8;;http://evil.example/\x1b\\link\x1b]8;;\x1b\\",
        b"\x1b]52;c;ZXZpbA==\x07",
        b"\x1b[c",
        b"\x9b31m",
        b"\xc2\x9b31m",
        b"\r\x1b[K\x08",
        b"\x1b[8m",
        b"\x1b[38;5;1m\x1b[5m\x1b[41m\x1b[m",
    ];

    fn is_text(c: char) -> bool {
        !plain::is_hazard(c) || c == '\n' || c == '\t'
    }

    #[test]
    fn no_sequence_passes_with_or_without_colours() {
        for sequence in SEQUENCES {
            for colours in [true, false] {
                let shown = filtered(&[b"a\tb", sequence, b"c\n"].concat(), colours);
                assert!(shown.chars().all(is_text), "{shown:?}");
                assert!(shown.starts_with("a\tb\\") && shown.ends_with("c\n"), "{shown:?}");
            }
        }
        assert_eq!(filtered(b"\x1b[2J\x9b\xe2\x80\xae", false), r"\x1b[2J\x9b\u{202e}");
    }

    #[test]
    fn our_colours_pass_where_there_are_colours() {
        let ours = "\x1b[1;31mbold\x1b[0m \x1b[2mdim\x1b[39m";
        assert_eq!(filtered(ours.as_bytes(), true), ours);
        assert_eq!(filtered(ours.as_bytes(), false), r"\x1b[1;31mbold\x1b[0m \x1b[2mdim\x1b[39m");
    }

    #[test]
    fn what_is_written_in_pieces_is_no_way_round() {
        for colours in [true, false] {
            for sequence in SEQUENCES {
                let mut screen = EscapedStream { stream: Vec::new(), colours };
                for byte in sequence {
                    screen.write_all(&[*byte]).unwrap();
                }
                let shown = String::from_utf8(screen.stream).unwrap();
                assert!(shown.chars().all(is_text), "{shown:?}");
            }
        }
    }

    #[test]
    fn names_of_files_are_on_one_line() {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
        assert_eq!(path(Path::new(OsStr::from_bytes(b"a\n\x1b[2J\xff"))), r"a\x0a\x1b[2J\xff");
    }
}

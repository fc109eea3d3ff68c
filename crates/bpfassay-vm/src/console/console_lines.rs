// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits console bytes into lines.

/// Longest line kept, in bytes. The rest of a longer line is dropped.
pub(crate) const MAX_LINE: usize = 4096;

/// Cuts a byte stream into lines of bounded length, without control characters and terminal
/// sequences.
#[derive(Debug, Default)]
pub(crate) struct LineCutter {
    line: Vec<u8>,
    cut: bool,
    escape: Escape,
}

/// Position in a terminal sequence (ECMA-48: ESC, then `[` and a final byte, or one byte).
#[derive(Debug, Default, Clone, Copy)]
enum Escape {
    #[default]
    None,
    Begun,
    Control,
}

impl LineCutter {
    /// Processes bytes, and passes each line that they complete to `each`.
    pub(crate) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(String)) {
        for &byte in bytes {
            match (self.escape, byte) {
                // A line feed ends a line in any state, so that an unterminated sequence costs at
                // most one line.
                (_, b'\n') => {
                    self.escape = Escape::None;
                    each(self.take());
                }
                (Escape::Begun, b'[') => self.escape = Escape::Control,
                (Escape::Begun, _) | (Escape::Control, 0x40..=0x7e) => self.escape = Escape::None,
                (Escape::Control, _) => {}
                (Escape::None, 0x1b) => self.escape = Escape::Begun,
                (Escape::None, b'\t' | 0x20..=0x7e | 0x80..) => {
                    if self.line.len() < MAX_LINE {
                        self.line.push(byte);
                    } else {
                        self.cut = true;
                    }
                }
                (Escape::None, _) => {}
            }
        }
    }

    /// Returns the last line if the stream ended in the middle of it.
    pub(crate) fn finish(&mut self) -> Option<String> {
        (!self.line.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> String {
        // Replaces tabs and the control characters of UTF-8 (0x80 to 0x9f). A terminal then
        // interprets nothing in the text.
        let mut text = String::from_utf8_lossy(&self.line).replace(char::is_control, " ");
        if std::mem::take(&mut self.cut) {
            text.push_str(" […]");
        }
        self.line.clear();
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<String> {
        let mut lines = LineCutter::default();
        let mut found = Vec::new();
        for chunk in chunks {
            lines.push(chunk, |line| found.push(line));
        }
        found.extend(lines.finish());
        found
    }

    #[test]
    fn terminal_sequences_and_carriage_returns_are_removed() {
        assert_eq!(
            lines(&[b"\x1bc\x1b[?7l\x1b[2J\x1b[0mSeaBIOS\r\n\r", b"\n[ 0.1] x\r\n~ # "]),
            ["SeaBIOS", "", "[ 0.1] x", "~ # "]
        );
    }

    #[test]
    fn long_lines_are_cut_with_a_mark() {
        let long = vec![b'x'; MAX_LINE + 1];
        let found = lines(&[&long, b"\nnext\n"]);
        assert_eq!(found[0].trim_end_matches(" […]").len(), MAX_LINE);
        assert!(found[0].ends_with(" […]"));
        assert_eq!(found[1], "next");
    }

    #[test]
    fn no_control_character_is_left() {
        assert_eq!(lines(&["a\tb\u{9b}2Jc\x07\x7fd\x00\n".as_bytes()]), ["a b 2Jcd"]);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced() {
        assert_eq!(lines(&[b"a\xff\xfeb\n"]), ["a\u{fffd}\u{fffd}b"]);
    }

    proptest! {
        #[test]
        fn any_bytes_give_bounded_clean_lines_however_cut(bytes: Vec<u8>, at: prop::sample::Index) {
            let whole = lines(&[&bytes]);
            let (a, b) = bytes.split_at(if bytes.is_empty() { 0 } else { at.index(bytes.len()) });
            prop_assert_eq!(&whole, &lines(&[a, b]));
            for line in whole {
                prop_assert!(!line.chars().any(char::is_control));
            }
        }
    }
}

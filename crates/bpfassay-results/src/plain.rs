// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of others, fit to be shown: what a terminal would obey, what changes the order of text and
//! what is not seen at all is shown by its number.
//!
//! Kernels, guests, tools, studies, manifests and results from outside contain any characters.
//! Every form that shows them goes through here; what may pass is defined in one place,
//! [`is_hazard`].

use std::{borrow::Cow, fmt::Write as _};

/// Whether `c` may reach no terminal, page or table as it is: control characters (C0 with the line
/// feed, DEL, C1), those that change the order of text (U+202A–202E, U+2066–2069, U+200E, U+200F,
/// U+061C), those that are not seen (U+200B, U+FEFF, tags, and so on) or end a line (U+2028,
/// U+2029), and those that XML does not have (U+FFFE, U+FFFF).
#[must_use]
pub fn is_hazard(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Adds `c` by its number: `\x1b`, `\u{202e}`.
pub fn push_escaped(text: &mut String, c: char) {
    let number = u32::from(c);
    // Writing to a string cannot fail.
    let _ = if c.is_ascii() { write!(text, "\\x{number:02x}") } else { write!(text, "\\u{{{number:x}}}") };
}

/// `text` with every hazard replaced as `replace` does.
fn mapped(text: &str, is_hazard: impl Fn(char) -> bool, replace: impl Fn(&mut String, char)) -> Cow<'_, str> {
    if !text.contains(&is_hazard) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hazard(c) { replace(&mut shown, c) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// `text` on one line: line feeds and tabs are spaces, other hazards are shown by their numbers.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    mapped(text, is_hazard, |shown, c| match c {
        '\n' | '\t' => shown.push(' '),
        c => push_escaped(shown, c),
    })
}

/// `text` on its lines: line feeds stay, tabs are spaces, other hazards are shown by their numbers.
#[must_use]
pub fn text(text: &str) -> Cow<'_, str> {
    mapped(
        text,
        |c| is_hazard(c) && c != '\n',
        |shown, c| match c {
            '\t' => shown.push(' '),
            c => push_escaped(shown, c),
        },
    )
}

/// `bytes`, such as a file's name, on one line: every hazard is shown by its number, and so are
/// bytes that are no UTF-8 (`\xff`).
#[must_use]
pub fn bytes(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_hazard(c) { push_escaped(&mut shown, c) } else { shown.push(c) }
        }
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// `text` on one line, of at most `most` characters; `…` stands for the rest.
#[must_use]
pub fn excerpt(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        // Cut before it is made longer by numbers: a megabyte need not be looked at.
        Some((end, _)) => format!("{}…", line(&text[..end])),
        None => line(text).into_owned(),
    }
}

/// `text` on one line, of at most `most` characters of its two ends; `…` stands for what is between
/// them. A program says last why it ends, so that twice as much of the end is kept.
#[must_use]
pub fn ends(text: &str, most: usize) -> String {
    let start = most / 3;
    let end = text.char_indices().rev().nth((most - start).saturating_sub(1)).map_or(0, |(index, _)| index);
    match text.char_indices().nth(start) {
        Some((first, _)) if first < end => format!("{}…{}", line(&text[..first]), line(&text[end..])),
        Some(_) | None => line(text).into_owned(),
    }
}

/// The JSON text `text` with hazards in its strings written as `\u009b`, which means the same.
/// Serializers escape only what is below U+0020.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    mapped(
        text,
        |c| is_hazard(c) && c != '\n',
        |shown, c| {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hazards_are_shown_by_their_numbers() {
        assert_eq!(line("a\u{1b}[2J\u{9b}m\r\n\t\u{202e}ü\u{7f}"), r"a\x1b[2J\u{9b}m\x0d  \u{202e}ü\x7f");
        assert_eq!(text("a\n\tb\u{7}"), "a\n b\\x07");
        assert_eq!(bytes(b"a\xff\x9b\n\xc2\x9b"), r"a\xff\x9b\x0a\u{9b}");
        assert_eq!(excerpt("abc", 3), "abc");
        assert_eq!(excerpt("ab\u{1b}def", 3), r"ab\x1b…");
        assert_eq!([ends("abcdef", 6), ends("abcdefg", 6), ends("a\nbü\u{1b}", 3)], ["abcdef", "ab…defg", r"a…ü\x1b"]);
        assert!(matches!(line("nothing of the kind: → …"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_means_the_same() {
        let value = "a\u{1b}\u{9b}\u{7f}\u{202e}\u{e0041}\n\"\\";
        let plain = serde_json::to_string(value).unwrap();
        let shown = json(&plain);
        assert!(plain.contains(is_hazard) && !shown.contains(is_hazard), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), value);
    }

    proptest! {
        #[test]
        fn nothing_of_the_kind_remains(all: Vec<u8>, any: String) {
            prop_assert!(!bytes(&all).contains(is_hazard));
            prop_assert!(!line(&any).contains(is_hazard));
            prop_assert!(!text(&any).contains(|c| is_hazard(c) && c != '\n'));
            prop_assert!(!json(&any).contains(|c| is_hazard(c) && c != '\n'));
        }
    }
}

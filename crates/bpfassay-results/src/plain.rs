// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes text from outside safe to print. Characters that a terminal would obey, that reorder
//! text, or that are invisible are replaced by their numbers.
//!
//! Kernels, guests, tools, studies, manifests and foreign results can contain any characters. All
//! output forms use this module, and [`is_hazard`] alone defines what is replaced.

use std::{borrow::Cow, fmt::Write as _};

/// Whether `c` must not reach a terminal, page or table unchanged:
///
/// - control characters: C0 with the line feed, DEL, C1
/// - characters that reorder text: U+202A–202E, U+2066–2069, U+200E, U+200F, U+061C
/// - invisible characters: U+200B, U+FEFF, tags, and so on
/// - line ends: U+2028, U+2029
/// - characters that XML forbids: U+FFFE, U+FFFF
#[must_use]
pub fn is_hazard(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Appends the number of `c`: `\x1b`, `\u{202e}`.
pub fn push_escaped(text: &mut String, c: char) {
    let number = u32::from(c);
    // Writing to a string cannot fail.
    let _ = if c.is_ascii() { write!(text, "\\x{number:02x}") } else { write!(text, "\\u{{{number:x}}}") };
}

/// Applies `replace` to every hazard in `text`.
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

/// Returns `text` on one line. Line feeds and tabs become spaces, other hazards their numbers.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    mapped(text, is_hazard, |shown, c| match c {
        '\n' | '\t' => shown.push(' '),
        c => push_escaped(shown, c),
    })
}

/// Returns `text` with its line feeds. Tabs become spaces, other hazards their numbers.
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

/// Returns `bytes`, such as a file name, on one line. Hazards become their numbers, and so do bytes
/// that are not UTF-8 (`\xff`).
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

/// Returns `text` on one line, with at most `most` characters of it; `…` stands for the rest.
#[must_use]
pub fn excerpt(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        // Cut before escaping, so that only the shown part of a long text is scanned.
        Some((end, _)) => format!("{}…", line(&text[..end])),
        None => line(text).into_owned(),
    }
}

/// Shows `text` on one line, with at most `most` characters. The middle of a longer text is
/// replaced by `…`. Programs print the reason for an error last, so two thirds of the result are
/// from the end.
#[must_use]
pub fn ends(text: &str, most: usize) -> String {
    let start = most / 3;
    let end = text.char_indices().rev().nth((most - start).saturating_sub(1)).map_or(0, |(index, _)| index);
    match text.char_indices().nth(start) {
        Some((first, _)) if first < end => format!("{}…{}", line(&text[..first]), line(&text[end..])),
        Some(_) | None => line(text).into_owned(),
    }
}

/// Escapes hazards in the strings of the JSON text `text` as `\u009b`, which means the same.
/// Serializers escape only characters below U+0020.
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

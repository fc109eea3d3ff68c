// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads strict TOML. The reader of a file is written by hand, every complaint has its place in the
//! text, and all complaints are reported at once.
//!
//! [`read`] parses a text and gives its root [`Section`] to a reader. An error is recorded at the
//! span of the value, and the reader holds a [`Reported`] in place of the value. A reader reads all
//! values of a table before it returns the first [`Reported`], so one call finds all errors.

mod complaint;
mod suggestion;
mod values;

use toml::de::DeTable;

use self::complaint::Document;
pub use self::{
    complaint::{Complaint, Invalid, Reported},
    suggestion::{is_file_name, nearest, suggestion},
    values::{Field, Section},
};

/// Reads the file `text` with `reader`. Messages call the file `origin`.
///
/// # Errors
/// [`Invalid`] if the text is not TOML or `reader` reported a complaint, even with a value.
pub fn read<T>(
    origin: &str,
    text: &str,
    reader: impl FnOnce(&Section<'_, '_>) -> Result<T, Reported>,
) -> Result<T, Invalid> {
    let document = Document::default();
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let message = error.message().lines().collect::<Vec<_>>().join("; ");
        document.report(error.span().unwrap_or(text.len()..text.len()), message, None);
    }
    if errors.is_empty() {
        let root = Section::new(&document, String::new(), root.get_ref(), 0..0);
        let outcome = reader(&root);
        if document.complaints.borrow().is_empty()
            && let Ok(value) = outcome
        {
            return Ok(value);
        }
    }
    let mut complaints = document.complaints.into_inner();
    complaints.sort_by_key(|complaint| complaint.span.start);
    Err(Invalid { origin: origin.to_owned(), text: text.to_owned(), complaints, omitted: document.omitted.get() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{complaint::MAX_COMPLAINTS, *};

    fn unknown_keys(text: &str) -> Invalid {
        let only_a = |root: &Section<'_, '_>| {
            root.only(&["a"]);
            Ok(())
        };
        read("x.toml", text, only_a).unwrap_err()
    }

    #[test]
    fn places_count_characters_not_bytes() {
        let invalid = unknown_keys("a = 1\n\"ü\" = 2\n");
        assert_eq!(invalid.to_string(), "x.toml:2:1: unknown key `ü`: known are a");
        assert_eq!(&invalid.text[invalid.complaints[0].span.clone()], "\"ü\"");
        let at = Complaint { span: 9..10, message: String::new(), help: None };
        assert_eq!(invalid.place(&at), (2, 3));
    }

    #[test]
    fn all_complaints_are_reported_in_the_order_of_the_file() {
        let read_it = |root: &Section<'_, '_>| {
            root.only(&["count", "kinds", "name"]);
            let name = root.need("name", Field::string);
            let kinds = root.need("kinds", |field| field.distinct("kind", |kind| kind.choice(&[("a", 1), ("b", 2)])));
            let count = root.or("count", 1, |count| count.number(1..=9));
            Ok((name?, kinds?, count?))
        };
        let text = "count = 10\nnmae = 1\nkinds = [\"a\", \"c\", \"b\", \"a\"]\n";
        let message = read("x.toml", text, read_it).unwrap_err().to_string();
        let expected = [
            "x.toml:1:9: `count`: 10 is not from 1 to 9",
            // The missing `name` is not a second complaint.
            "x.toml:2:1: unknown key `nmae`: did you mean `name`?",
            "x.toml:3:15: `kinds[1]`: unknown value `c`; known are a, b",
            "x.toml:3:25: `kinds[3]`: this kind is listed twice",
        ];
        assert_eq!(message.lines().collect::<Vec<_>>(), expected);
        assert_eq!(read("x.toml", "name = \"n\"\nkinds = \"b\"\n", read_it), Ok(("n".to_owned(), vec![2], 1)));
        // Syntax errors have their places, too.
        let syntax = read("x.toml", "a = \nb = 1\nc = tru\n", |_| Ok(())).unwrap_err();
        assert_eq!(syntax.complaints.iter().map(|one| syntax.place(one).0).collect::<Vec<_>>(), [1, 3], "{syntax}");
    }

    #[test]
    fn the_number_of_complaints_is_bounded() {
        let text: String = (0..1000).map(|number| format!("k{number} = 1\n")).collect();
        let invalid = unknown_keys(&text);
        assert_eq!((invalid.complaints.len(), invalid.omitted), (MAX_COMPLAINTS, 1000 - MAX_COMPLAINTS));
        assert!(invalid.to_string().ends_with("\n950 more errors in x.toml"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text: String) {
            if let Err(invalid) = read("x", &text, |root| { root.only(&["schema"]); Ok(()) }) {
                prop_assert!(!invalid.complaints.is_empty());
                prop_assert!(invalid.complaints.iter().all(|one| invalid.text.get(one.span.clone()).is_some()), "{:?}", invalid);
            }
        }
    }
}

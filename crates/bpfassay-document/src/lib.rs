//! TOML read by hand, so that every complaint has a line: unknown keys, wrong types, values out of range.
//!
//! Here: what study files and tool files have in common. Not here: what any key means.

#![forbid(unsafe_code)]

use std::{fmt::Display, ops::RangeInclusive, path::Path, str::FromStr};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Keys that are closer than this (Jaro-Winkler) are offered as what was meant.
const CLOSE: f64 = 0.75;

/// Something in a file is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}:{line}:{column}: {message}")]
pub struct Invalid {
    /// What the file is called in messages.
    pub origin: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong there and what would be right.
    pub message: String,
}

/// A parsed TOML file with its text, for line numbers.
pub struct Document<'i> {
    origin: String,
    text: &'i str,
    root: Spanned<DeTable<'i>>,
}

impl<'i> Document<'i> {
    /// Reads `text`; `origin` names it in messages.
    ///
    /// # Errors
    /// Where it is not TOML.
    pub fn parse(origin: &str, text: &'i str) -> Result<Self, Invalid> {
        let root = DeTable::parse(text).map_err(|error| {
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            invalid(origin, text, error.span().map_or(text.len(), |span| span.start), message)
        })?;
        Ok(Self { origin: origin.to_owned(), text, root })
    }

    /// The table that the file is.
    #[must_use]
    pub fn root(&self) -> Section<'_, 'i> {
        Section { document: self, path: String::new(), table: self.root.get_ref(), at: 0 }
    }

    fn invalid(&self, at: usize, message: impl Into<String>) -> Invalid {
        invalid(&self.origin, self.text, at, message.into())
    }
}

fn invalid(origin: &str, text: &str, at: usize, message: String) -> Invalid {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    Invalid {
        origin: origin.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
        message,
    }
}

/// The nearest of `known`, if one is near enough to be what was meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(score, _)| *score >= CLOSE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Whether `name` names a file rather than something bundled: it looks like a path, or there is a file of that name.
#[must_use]
pub fn is_file_name(name: &str) -> bool {
    let path = Path::new(name);
    name.contains('/') || path.extension().is_some_and(|extension| extension == "toml") || path.exists()
}

/// For the end of a message that none of `known` is called `word`: a suggestion that begins with `; `, or nothing.
pub fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

/// A table.
pub struct Section<'d, 'i> {
    document: &'d Document<'i>,
    path: String,
    table: &'d DeTable<'i>,
    at: usize,
}

impl<'d, 'i> Section<'d, 'i> {
    /// Refuses keys that are not in `known`.
    ///
    /// # Errors
    /// At the first such key, with the nearest known one.
    pub fn only(&self, known: &[&str]) -> Result<(), Invalid> {
        for (key, _) in self.table {
            let word: &str = key.get_ref();
            if !known.contains(&word) {
                let shown: String = word.chars().take(64).collect();
                let hint = match nearest(word, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("known are {}", known.join(", ")),
                };
                return Err(self
                    .document
                    .invalid(key.span().start, format!("unknown key `{shown}`{}: {hint}", self.place())));
            }
        }
        Ok(())
    }

    /// The keys and their values, in the order of keys.
    pub fn entries(&self) -> impl Iterator<Item = (&'d str, Field<'d, 'i>)> {
        self.table.iter().map(|(key, value)| {
            let key: &str = key.get_ref();
            (key, Field { document: self.document, path: self.path_of(key), value })
        })
    }

    /// The value of `key`, if it is there.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Field<'d, 'i>> {
        let (_, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(Field { document: self.document, path: self.path_of(key), value })
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Where it is missing.
    pub fn need(&self, key: &str) -> Result<Field<'d, 'i>, Invalid> {
        self.get(key).ok_or_else(|| self.error(format!("key `{key}` is missing{}", self.place())))
    }

    /// A complaint about the table.
    pub fn error(&self, message: impl Into<String>) -> Invalid {
        self.document.invalid(self.at, message)
    }

    fn place(&self) -> String {
        if self.path.is_empty() { String::new() } else { format!(" in `{}`", self.path) }
    }
}

/// A value with its place.
pub struct Field<'d, 'i> {
    document: &'d Document<'i>,
    path: String,
    value: &'d Spanned<DeValue<'i>>,
}

impl<'d, 'i> Field<'d, 'i> {
    /// A complaint about the value.
    pub fn error(&self, message: impl Display) -> Invalid {
        self.document.invalid(self.value.span().start, format!("`{}`: {message}", self.path))
    }

    fn wrong(&self, wanted: &str) -> Invalid {
        let found = match self.value.get_ref() {
            DeValue::String(_) => "text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.error(format!("expected {wanted}, found {found}"))
    }

    /// Text.
    ///
    /// # Errors
    /// Where it is something else; likewise below.
    pub fn text(&self) -> Result<&'d str, Invalid> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.wrong("text")),
        }
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// Where it is something else.
    pub fn boolean(&self) -> Result<bool, Invalid> {
        match self.value.get_ref() {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(self.wrong("true or false")),
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// Where it is something else, or outside `range`.
    pub fn number<N: TryFrom<i128> + PartialOrd + Display>(&self, range: RangeInclusive<N>) -> Result<N, Invalid> {
        let DeValue::Integer(integer) = self.value.get_ref() else { return Err(self.wrong("a whole number")) };
        i128::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .and_then(|value| N::try_from(value).ok())
            .filter(|value| range.contains(value))
            .ok_or_else(|| self.error(format!("{integer} is not from {} to {}", range.start(), range.end())))
    }

    /// Text that names something.
    ///
    /// # Errors
    /// Where it names nothing.
    pub fn name<T: FromStr<Err: Display>>(&self) -> Result<T, Invalid> {
        self.text()?.parse().map_err(|error| self.error(error))
    }

    /// One of a few words.
    ///
    /// # Errors
    /// Where it is none of them.
    pub fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, Invalid> {
        let text = self.text()?;
        words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            let known = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
            self.error(format!("unknown word `{}`; known are {known}", text.chars().take(64).collect::<String>()))
        })
    }

    /// A time with its unit (`500ms`, `2s`, `10min`), in milliseconds.
    ///
    /// # Errors
    /// Where it is no time, or outside `range`.
    pub fn milliseconds(&self, range: RangeInclusive<u64>) -> Result<u64, Invalid> {
        let text =
            self.text().map_err(|_| self.wrong("a time with its unit, such as \"2s\", \"500ms\" or \"10min\""))?;
        let value = milliseconds(text).ok_or_else(|| {
            self.error(format!(
                "`{}` is not a time such as 2s, 500ms or 10min",
                text.chars().take(64).collect::<String>()
            ))
        })?;
        if range.contains(&value) {
            return Ok(value);
        }
        Err(self.error(format!("{text} is not from {} ms to {} ms", range.start(), range.end())))
    }

    /// The elements of a list; one value alone counts as a list of one.
    ///
    /// # Errors
    /// Where the list is empty.
    pub fn list(&self) -> Result<Vec<Field<'d, 'i>>, Invalid> {
        let DeValue::Array(array) = self.value.get_ref() else {
            return Ok(vec![Field { document: self.document, path: self.path.clone(), value: self.value }]);
        };
        let elements: Vec<_> = array
            .iter()
            .enumerate()
            .map(|(index, value)| Field { document: self.document, path: format!("{}[{index}]", self.path), value })
            .collect();
        if elements.is_empty() {
            return Err(self.error("the list is empty: name at least one"));
        }
        Ok(elements)
    }

    /// A table.
    ///
    /// # Errors
    /// Where it is something else.
    pub fn table(&self) -> Result<Section<'d, 'i>, Invalid> {
        let DeValue::Table(table) = self.value.get_ref() else { return Err(self.wrong("a table")) };
        Ok(Section { document: self.document, path: self.path.clone(), table, at: self.value.span().start })
    }
}

/// The values of a list, each at most once.
///
/// # Errors
/// What `read` returns, and where a value stands there twice.
pub fn distinct<'d, 'i, T: PartialEq>(
    field: &Field<'d, 'i>,
    kind: &str,
    read: impl Fn(&Field<'d, 'i>) -> Result<T, Invalid>,
) -> Result<Vec<T>, Invalid> {
    let mut values = Vec::new();
    for element in field.list()? {
        let value = read(&element)?;
        if values.contains(&value) {
            return Err(element.error(format!("this {kind} stands here twice")));
        }
        values.push(value);
    }
    Ok(values)
}

/// A name that can be part of a file name and of identifiers, in which `_` separates parts.
///
/// # Errors
/// Where it cannot.
pub fn short_name(field: &Field<'_, '_>) -> Result<String, Invalid> {
    let text = field.text()?;
    let valid = (1..=40).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'));
    if valid {
        return Ok(text.to_owned());
    }
    Err(field.error("use at most 40 lower-case letters, digits, `-` and `.`, a letter or digit first"))
}

fn milliseconds(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let factor = match unit.trim_start() {
        "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(milliseconds("2s"), Some(2000));
        assert_eq!(milliseconds("500 ms"), Some(500));
        assert_eq!(milliseconds("10min"), Some(600_000));
        assert_eq!(milliseconds("2"), None);
        assert_eq!(milliseconds("s"), None);
        assert_eq!(milliseconds("18446744073709551615h"), None);
    }

    #[test]
    fn places_count_characters_not_bytes() {
        let text = "a = 1\nü = 2\n";
        let document = Document::parse("x.toml", "a = 1\n\"ü\" = 2\n").unwrap();
        assert!(document.root().only(&["a"]).unwrap_err().to_string().starts_with("x.toml:2:1: unknown key `ü`"));
        let Invalid { line, column, .. } = invalid("x", text, 9, String::new());
        assert_eq!((line, column), (2, 3));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text: String) {
            if let Ok(document) = Document::parse("x", &text) {
                let _ = document.root().only(&["schema"]);
            }
        }
    }
}

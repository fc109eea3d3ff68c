//! TOML read by hand, so that every complaint has a line: unknown keys, wrong types, values out of range.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::StudyError;

/// Keys that are closer than this (Jaro-Winkler) are offered as what was meant.
const CLOSE: f64 = 0.75;

/// A parsed TOML file with its text, for line numbers.
pub(crate) struct Document<'i> {
    origin: String,
    text: &'i str,
    root: Spanned<DeTable<'i>>,
}

impl<'i> Document<'i> {
    pub(crate) fn parse(origin: &str, text: &'i str) -> Result<Self, StudyError> {
        let root = DeTable::parse(text).map_err(|error| {
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            invalid(origin, text, error.span().map_or(text.len(), |span| span.start), message)
        })?;
        Ok(Self { origin: origin.to_owned(), text, root })
    }

    pub(crate) fn root(&self) -> Section<'_, 'i> {
        Section { document: self, path: String::new(), table: self.root.get_ref(), at: 0 }
    }

    fn invalid(&self, at: usize, message: impl Into<String>) -> StudyError {
        invalid(&self.origin, self.text, at, message.into())
    }
}

fn invalid(origin: &str, text: &str, at: usize, message: String) -> StudyError {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    StudyError::Invalid {
        origin: origin.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
        message,
    }
}

/// `; did you mean …?` for the nearest of `known`, or nothing.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(score, _)| *score >= CLOSE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// A table.
pub(crate) struct Section<'d, 'i> {
    document: &'d Document<'i>,
    path: String,
    table: &'d DeTable<'i>,
    at: usize,
}

impl<'d, 'i> Section<'d, 'i> {
    /// Refuses keys that are not in `known`.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), StudyError> {
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

    pub(crate) fn get(&self, key: &str) -> Option<Field<'d, 'i>> {
        let (_, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Some(Field { document: self.document, path, value })
    }

    pub(crate) fn need(&self, key: &str) -> Result<Field<'d, 'i>, StudyError> {
        self.get(key).ok_or_else(|| self.error(format!("key `{key}` is missing{}", self.place())))
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> StudyError {
        self.document.invalid(self.at, message)
    }

    fn place(&self) -> String {
        if self.path.is_empty() { String::new() } else { format!(" in `{}`", self.path) }
    }
}

/// A value with its place.
pub(crate) struct Field<'d, 'i> {
    document: &'d Document<'i>,
    path: String,
    value: &'d Spanned<DeValue<'i>>,
}

impl<'d, 'i> Field<'d, 'i> {
    pub(crate) fn error(&self, message: impl Display) -> StudyError {
        self.document.invalid(self.value.span().start, format!("`{}`: {message}", self.path))
    }

    fn wrong(&self, wanted: &str) -> StudyError {
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

    pub(crate) fn text(&self) -> Result<&'d str, StudyError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.wrong("text")),
        }
    }

    pub(crate) fn boolean(&self) -> Result<bool, StudyError> {
        match self.value.get_ref() {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(self.wrong("true or false")),
        }
    }

    pub(crate) fn number<N: TryFrom<i128> + PartialOrd + Display>(
        &self,
        range: RangeInclusive<N>,
    ) -> Result<N, StudyError> {
        let DeValue::Integer(integer) = self.value.get_ref() else { return Err(self.wrong("a whole number")) };
        i128::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .and_then(|value| N::try_from(value).ok())
            .filter(|value| range.contains(value))
            .ok_or_else(|| self.error(format!("{integer} is not from {} to {}", range.start(), range.end())))
    }

    /// Text that names something.
    pub(crate) fn name<T: FromStr<Err: Display>>(&self) -> Result<T, StudyError> {
        self.text()?.parse().map_err(|error| self.error(error))
    }

    /// One of a few words.
    pub(crate) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, StudyError> {
        let text = self.text()?;
        words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            let known = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
            self.error(format!("unknown word `{}`; known are {known}", text.chars().take(64).collect::<String>()))
        })
    }

    /// A time with its unit (`500ms`, `2s`, `10min`), in milliseconds.
    pub(crate) fn milliseconds(&self, range: RangeInclusive<u64>) -> Result<u64, StudyError> {
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
    pub(crate) fn list(&self) -> Result<Vec<Field<'d, 'i>>, StudyError> {
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

    pub(crate) fn table(&self) -> Result<Section<'d, 'i>, StudyError> {
        let DeValue::Table(table) = self.value.get_ref() else { return Err(self.wrong("a table")) };
        Ok(Section { document: self.document, path: self.path.clone(), table, at: self.value.span().start })
    }
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
        let StudyError::Invalid { line, column, .. } = invalid("x", text, 9, String::new()) else { unreachable!() };
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

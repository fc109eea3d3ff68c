// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables and values with their places in the text.

use std::{
    cell::RefCell,
    fmt::Display,
    ops::{Range, RangeInclusive},
    str::FromStr,
};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    complaint::{Document, Reported},
    suggestion::{nearest, shown, suggestion},
};

/// A table.
pub struct Section<'d, 'i> {
    document: &'d Document,
    path: String,
    table: &'d DeTable<'i>,
    span: Range<usize>,
    /// Known keys that are misspelt in the table. The misspelling has been reported.
    misspelt: RefCell<Vec<String>>,
}

impl<'d, 'i> Section<'d, 'i> {
    pub(super) fn new(document: &'d Document, path: String, table: &'d DeTable<'i>, span: Range<usize>) -> Self {
        Self { document, path, table, span, misspelt: RefCell::default() }
    }

    /// Reports keys that are not in `known`, each with the nearest known key.
    pub fn only(&self, known: &[&str]) {
        for (key, _) in self.table {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let near = nearest(name, known.iter().copied());
            self.misspelt.borrow_mut().extend(near.map(str::to_owned));
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are {}", known.join(", ")),
            };
            self.document.report(key.span(), format!("unknown key `{}`{}", shown(name), self.place()), Some(help));
        }
    }

    /// Returns the keys and their values in the order of the keys.
    pub fn entries(&self) -> impl Iterator<Item = (&'d str, Field<'d, 'i>)> {
        self.table.iter().map(|(key, value)| {
            let key: &str = key.get_ref();
            (key, Field { document: self.document, path: self.path_of(key), value })
        })
    }

    /// Returns the value of `key` if it exists.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Field<'d, 'i>> {
        let (_, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(Field { document: self.document, path: self.path_of(key), value })
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Reads the value of `key` with `read`.
    ///
    /// # Errors
    /// The key is missing, or `read` fails.
    pub fn need<T>(&self, key: &str, read: impl FnOnce(&Field<'d, 'i>) -> Result<T, Reported>) -> Result<T, Reported> {
        match self.get(key) {
            Some(field) => read(&field),
            None if self.misspelt.borrow().iter().any(|name| name == key) => Err(Reported(())),
            None => Err(self.error(format!("key `{key}` is missing{}", self.place()))),
        }
    }

    /// Returns whether the table has `key`.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Reads the value of `key` with `read`, or returns `None` if there is no such key.
    ///
    /// # Errors
    /// `read` fails.
    pub fn optional<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Field<'d, 'i>) -> Result<T, Reported>,
    ) -> Result<Option<T>, Reported> {
        self.get(key).map(|field| read(&field)).transpose()
    }

    /// Reads the value of `key` with `read`, or returns `default` if there is no such key.
    ///
    /// # Errors
    /// `read` fails.
    pub fn or<T>(
        &self,
        key: &str,
        default: T,
        read: impl FnOnce(&Field<'d, 'i>) -> Result<T, Reported>,
    ) -> Result<T, Reported> {
        self.get(key).map_or(Ok(default), |field| read(&field))
    }

    /// Reports a complaint about the table.
    pub fn error(&self, message: impl Into<String>) -> Reported {
        self.document.report(self.span.clone(), message.into(), None)
    }

    fn place(&self) -> String {
        if self.path.is_empty() { String::new() } else { format!(" in `{}`", self.path) }
    }
}

/// A value with its place.
pub struct Field<'d, 'i> {
    document: &'d Document,
    path: String,
    value: &'d Spanned<DeValue<'i>>,
}

impl<'d, 'i> Field<'d, 'i> {
    /// Reports a complaint about the value.
    pub fn error(&self, message: impl Display) -> Reported {
        self.document.report(self.value.span(), format!("`{}`: {message}", self.path), None)
    }

    fn wrong(&self, wanted: &str) -> Reported {
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

    /// Returns whether the value is a list.
    #[must_use]
    pub fn is_list(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::Array(_))
    }

    /// Returns whether the value is a table that has `key`.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        matches!(self.value.get_ref(), DeValue::Table(table) if table.contains_key(key))
    }

    /// Returns whether the value is a table.
    #[must_use]
    pub fn is_table(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::Table(_))
    }

    /// Returns whether the value is a boolean.
    #[must_use]
    pub fn is_boolean(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::Boolean(_))
    }

    /// Returns whether the value is a string.
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::String(_))
    }

    /// Returns the text of a string.
    ///
    /// # Errors
    /// The value is not a string.
    pub fn text(&self) -> Result<&'d str, Reported> {
        self.text_such_as("text")
    }

    fn text_such_as(&self, wanted: &str) -> Result<&'d str, Reported> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.wrong(wanted)),
        }
    }

    /// Returns a copy of the text of a string.
    ///
    /// # Errors
    /// The value is not a string.
    pub fn string(&self) -> Result<String, Reported> {
        self.text().map(str::to_owned)
    }

    /// Returns a boolean.
    ///
    /// # Errors
    /// The value is not a boolean.
    pub fn boolean(&self) -> Result<bool, Reported> {
        match self.value.get_ref() {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(self.wrong("true or false")),
        }
    }

    /// Returns an integer.
    ///
    /// # Errors
    /// The value is not an integer, or is outside `range`.
    pub fn number<N: TryFrom<i128> + PartialOrd + Display>(&self, range: RangeInclusive<N>) -> Result<N, Reported> {
        let DeValue::Integer(integer) = self.value.get_ref() else { return Err(self.wrong("a whole number")) };
        i128::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .and_then(|value| N::try_from(value).ok())
            .filter(|value| range.contains(value))
            .ok_or_else(|| self.error(format!("{integer} is not from {} to {}", range.start(), range.end())))
    }

    /// Parses a string as a name.
    ///
    /// # Errors
    /// The value is not a string, or the name is unknown.
    pub fn name<T: FromStr<Err: Display>>(&self) -> Result<T, Reported> {
        self.text()?.parse().map_err(|error| self.error(error))
    }

    /// Returns the value that belongs to one of `names`.
    ///
    /// # Errors
    /// The value is not a string, or is not one of `names`.
    pub fn choice<T: Copy>(&self, names: &[(&str, T)]) -> Result<T, Reported> {
        let text = self.text()?;
        names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
            let known = names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            let nearest = suggestion(text, names.iter().map(|(name, _)| *name));
            self.error(format!("unknown value `{}`; known are {known}{nearest}", shown(text)))
        })
    }

    /// Returns a time with its unit (`500ms`, `2s`, `10min`) in milliseconds.
    ///
    /// # Errors
    /// The value is not a time with its unit, or is outside `range`.
    pub fn milliseconds(&self, range: RangeInclusive<u64>) -> Result<u64, Reported> {
        let text = self.text_such_as("a time with its unit, such as \"2s\", \"500ms\" or \"10min\"")?;
        let value = milliseconds(text)
            .ok_or_else(|| self.error(format!("`{}` is not a time such as 2s, 500ms or 10min", shown(text))))?;
        if range.contains(&value) {
            return Ok(value);
        }
        Err(self.error(format!("{text} is not from {} ms to {} ms", range.start(), range.end())))
    }

    /// Returns the elements of a list. A value that is not a list counts as a list of one element.
    ///
    /// # Errors
    /// The list is empty.
    pub fn list(&self) -> Result<Vec<Field<'d, 'i>>, Reported> {
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

    /// Reads each element of a list ([`Self::list`]) with `read`, even after one that fails.
    ///
    /// # Errors
    /// The list is empty, or `read` fails.
    pub fn each<T>(&self, mut read: impl FnMut(&Self) -> Result<T, Reported>) -> Result<Vec<T>, Reported> {
        let read: Vec<_> = self.list()?.iter().map(&mut read).collect();
        read.into_iter().collect()
    }

    /// Like [`Self::each`], but no value can be listed twice. Messages call an element `kind`.
    ///
    /// # Errors
    /// The errors of [`Self::each`], and a value that is listed twice.
    pub fn distinct<T: PartialEq>(
        &self,
        kind: &str,
        read: impl Fn(&Self) -> Result<T, Reported>,
    ) -> Result<Vec<T>, Reported> {
        let mut values = Vec::new();
        let is_new = self.each(|element| {
            let value = read(element)?;
            if values.contains(&value) {
                return Err(element.error(format!("this {kind} is listed twice")));
            }
            values.push(value);
            Ok(())
        });
        is_new.map(|_| values)
    }

    /// Returns a table.
    ///
    /// # Errors
    /// The value is not a table.
    pub fn table(&self) -> Result<Section<'d, 'i>, Reported> {
        let DeValue::Table(table) = self.value.get_ref() else { return Err(self.wrong("a table")) };
        Ok(Section::new(self.document, self.path.clone(), table, self.value.span()))
    }

    /// Returns a name that can be a part of file names, and of identifiers separated by `_`.
    ///
    /// # Errors
    /// The value is not a string of 1 to 40 of the characters `a-z`, `0-9`, `-` and `.`, or it
    /// begins with `-` or `.`.
    pub fn short_name(&self) -> Result<String, Reported> {
        self.check_short_name(self.text()?)
    }

    /// Checks `text`, such as the key of the value, in the same way as [`Self::short_name`].
    ///
    /// # Errors
    /// [`Reported`] if `text` is not such a name.
    pub fn check_short_name(&self, text: &str) -> Result<String, Reported> {
        let valid = (1..=40).contains(&text.len())
            && text.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'));
        if valid {
            return Ok(text.to_owned());
        }
        Err(self.error("use at most 40 lower-case letters, digits, `-` and `.`, a letter or digit first"))
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
}

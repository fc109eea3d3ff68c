// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strict TOML: a file is read by hand, every complaint has its place in the text, and all complaints are reported at once.
//!
//! [`read`] parses a text and gives its root [`Section`] to a reader. What the reader finds wrong is recorded at the span of the
//! value; the reader then holds a [`Reported`] in place of the value. A reader reads all values of a table before it returns the
//! first [`Reported`], so that one run finds what is wrong with each of them.

use std::{
    cell::{Cell, RefCell},
    fmt::{self, Display},
    ops::{Range, RangeInclusive},
    path::Path,
    str::FromStr,
};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Names that are closer than this (Jaro-Winkler) are suggested.
const CLOSE: f64 = 0.75;

/// Most complaints of one file.
const MAX_COMPLAINTS: usize = 50;

/// A file is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Invalid {
    /// What the file is called in messages.
    pub origin: String,
    /// The text of the file, as it was read: untrusted.
    pub text: String,
    /// What is wrong with it, in the order of the text; never empty.
    pub complaints: Vec<Complaint>,
    /// How many more complaints there were.
    pub omitted: usize,
}

/// Something that is wrong at a place of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// Where: bytes of the text.
    pub span: Range<usize>,
    /// What is wrong, and what would be right. It may quote the file.
    pub message: String,
    /// A suggestion.
    pub help: Option<String>,
}

impl Invalid {
    /// Line and column, in characters, at which `complaint` begins; both from 1.
    #[must_use]
    pub fn place(&self, complaint: &Complaint) -> (usize, usize) {
        let before = self.text.get(..complaint.span.start).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, before.get(line_start..).unwrap_or_default().chars().count() + 1)
    }
}

/// A line for each complaint: `study.toml:3:1: unknown key …`.
impl Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, complaint) in self.complaints.iter().enumerate() {
            let (line, column) = self.place(complaint);
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}:{line}:{column}: {}", self.origin, complaint.message)?;
            if let Some(help) = &complaint.help {
                write!(f, ": {help}")?;
            }
        }
        if self.omitted > 0 {
            write!(f, "\n{} more errors in {}", self.omitted, self.origin)?;
        }
        Ok(())
    }
}

/// There is no value, because something is wrong; the document has a complaint about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported(());

/// A file that is being read.
struct Document {
    complaints: RefCell<Vec<Complaint>>,
    omitted: Cell<usize>,
}

impl Document {
    fn report(&self, span: Range<usize>, message: String, help: Option<String>) -> Reported {
        let mut complaints = self.complaints.borrow_mut();
        if complaints.len() < MAX_COMPLAINTS {
            complaints.push(Complaint { span, message, help });
        } else {
            self.omitted.set(self.omitted.get() + 1);
        }
        Reported(())
    }
}

/// Reads the file `text` as `reader` does; `origin` names it in messages.
///
/// # Errors
/// [`Invalid`] where the text is not TOML, and where `reader` found something wrong, even if it has returned a value.
pub fn read<T>(
    origin: &str,
    text: &str,
    reader: impl FnOnce(&Section<'_, '_>) -> Result<T, Reported>,
) -> Result<T, Invalid> {
    let document = Document { complaints: RefCell::default(), omitted: Cell::new(0) };
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

/// The nearest of `known`, if one is near enough to be suggested.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(score, _)| *score >= CLOSE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// For the end of a message that none of `known` is called `name`: a suggestion that begins with `; `, or nothing.
pub fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

/// Whether `name` names a file rather than something bundled: it looks like a path, or there is a file of that name.
#[must_use]
pub fn is_file_name(name: &str) -> bool {
    let path = Path::new(name);
    name.contains('/') || path.extension().is_some_and(|extension| extension == "toml") || path.exists()
}

/// `text` cut to a length that a message can hold.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

/// A table.
pub struct Section<'d, 'i> {
    document: &'d Document,
    path: String,
    table: &'d DeTable<'i>,
    span: Range<usize>,
    /// Keys that are missing because they are misspelt, which has been reported.
    misspelt: RefCell<Vec<String>>,
}

impl<'d, 'i> Section<'d, 'i> {
    fn new(document: &'d Document, path: String, table: &'d DeTable<'i>, span: Range<usize>) -> Self {
        Self { document, path, table, span, misspelt: RefCell::default() }
    }

    /// Reports keys that are not in `known`, each with the nearest known one.
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

    /// What `read` makes of the value of `key`.
    ///
    /// # Errors
    /// Where the key is missing, and what `read` returns.
    pub fn need<T>(&self, key: &str, read: impl FnOnce(&Field<'d, 'i>) -> Result<T, Reported>) -> Result<T, Reported> {
        match self.get(key) {
            Some(field) => read(&field),
            None if self.misspelt.borrow().iter().any(|name| name == key) => Err(Reported(())),
            None => Err(self.error(format!("key `{key}` is missing{}", self.place()))),
        }
    }

    /// What `read` makes of the value of `key`; `None` without one.
    ///
    /// # Errors
    /// What `read` returns for a value that is there.
    pub fn optional<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Field<'d, 'i>) -> Result<T, Reported>,
    ) -> Result<Option<T>, Reported> {
        self.get(key).map(|field| read(&field)).transpose()
    }

    /// What `read` makes of the value of `key`; `default` without one.
    ///
    /// # Errors
    /// What `read` returns for a value that is there.
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

    /// Whether the value is a list.
    #[must_use]
    pub fn is_list(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::Array(_))
    }

    /// Whether the value is a table with the key `key`.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        matches!(self.value.get_ref(), DeValue::Table(table) if table.contains_key(key))
    }

    /// Text.
    ///
    /// # Errors
    /// Where the value is not a string.
    pub fn text(&self) -> Result<&'d str, Reported> {
        self.text_such_as("text")
    }

    fn text_such_as(&self, wanted: &str) -> Result<&'d str, Reported> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.wrong(wanted)),
        }
    }

    /// Text, as it stands there.
    ///
    /// # Errors
    /// Where the value is not a string.
    pub fn string(&self) -> Result<String, Reported> {
        self.text().map(str::to_owned)
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// Where the value is not a boolean.
    pub fn boolean(&self) -> Result<bool, Reported> {
        match self.value.get_ref() {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(self.wrong("true or false")),
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// Where the value is not an integer, or is outside `range`.
    pub fn number<N: TryFrom<i128> + PartialOrd + Display>(&self, range: RangeInclusive<N>) -> Result<N, Reported> {
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
    /// Where the value is not a string, or names nothing that is known.
    pub fn name<T: FromStr<Err: Display>>(&self) -> Result<T, Reported> {
        self.text()?.parse().map_err(|error| self.error(error))
    }

    /// One of a few names.
    ///
    /// # Errors
    /// Where the value is not a string, or none of `names`.
    pub fn choice<T: Copy>(&self, names: &[(&str, T)]) -> Result<T, Reported> {
        let text = self.text()?;
        names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
            let known = names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            self.error(format!("unknown value `{}`; known are {known}", shown(text)))
        })
    }

    /// A time with its unit (`500ms`, `2s`, `10min`), in milliseconds.
    ///
    /// # Errors
    /// Where the value is not a time with its unit, or is outside `range`.
    pub fn milliseconds(&self, range: RangeInclusive<u64>) -> Result<u64, Reported> {
        let text = self.text_such_as("a time with its unit, such as \"2s\", \"500ms\" or \"10min\"")?;
        let value = milliseconds(text)
            .ok_or_else(|| self.error(format!("`{}` is not a time such as 2s, 500ms or 10min", shown(text))))?;
        if range.contains(&value) {
            return Ok(value);
        }
        Err(self.error(format!("{text} is not from {} ms to {} ms", range.start(), range.end())))
    }

    /// The elements of a list; one value alone counts as a list of one.
    ///
    /// # Errors
    /// Where the value is a list without elements.
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

    /// What `read` makes of each element of a list ([`Self::list`]). All are read, whatever is wrong with some.
    ///
    /// # Errors
    /// Where the list is empty, and what `read` returns.
    pub fn each<T>(&self, mut read: impl FnMut(&Self) -> Result<T, Reported>) -> Result<Vec<T>, Reported> {
        let read: Vec<_> = self.list()?.iter().map(&mut read).collect();
        read.into_iter().collect()
    }

    /// As [`Self::each`], for values of which each may stand there once only; `kind` names them.
    ///
    /// # Errors
    /// As of [`Self::each`], and where a value stands there twice.
    pub fn distinct<T: PartialEq>(
        &self,
        kind: &str,
        read: impl Fn(&Self) -> Result<T, Reported>,
    ) -> Result<Vec<T>, Reported> {
        let mut values = Vec::new();
        let is_new = self.each(|element| {
            let value = read(element)?;
            if values.contains(&value) {
                return Err(element.error(format!("this {kind} stands here twice")));
            }
            values.push(value);
            Ok(())
        });
        is_new.map(|_| values)
    }

    /// A table.
    ///
    /// # Errors
    /// Where the value is not a table.
    pub fn table(&self) -> Result<Section<'d, 'i>, Reported> {
        let DeValue::Table(table) = self.value.get_ref() else { return Err(self.wrong("a table")) };
        Ok(Section::new(self.document, self.path.clone(), table, self.value.span()))
    }

    /// A name that can be part of a file name and of identifiers, in which `_` separates parts.
    ///
    /// # Errors
    /// Where the value is not a string of 1 to 40 of the characters `a-z`, `0-9`, `-` and `.`, or begins with one of the last two.
    pub fn short_name(&self) -> Result<String, Reported> {
        let text = self.text()?;
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
            // That `name` is missing is the same complaint.
            "x.toml:2:1: unknown key `nmae`: did you mean `name`?",
            "x.toml:3:15: `kinds[1]`: unknown value `c`; known are a, b",
            "x.toml:3:25: `kinds[3]`: this kind stands here twice",
        ];
        assert_eq!(message.lines().collect::<Vec<_>>(), expected);
        assert_eq!(read("x.toml", "name = \"n\"\nkinds = \"b\"\n", read_it), Ok(("n".to_owned(), vec![2], 1)));
        // Errors of the syntax, too.
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

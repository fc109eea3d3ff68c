// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes JSON with the keys in order, and numbers in IOR's format.

use std::io::{self, Write};

/// Writes one JSON value piece by piece, so that a run that ends early leaves its results so far.
pub(crate) struct Json<W> {
    out: W,
    /// For every open object and array: the closing bracket, and whether it has elements.
    open: Vec<(char, bool)>,
}

impl<W: Write> Json<W> {
    pub(crate) const fn new(out: W) -> Self {
        Self { out, open: Vec::new() }
    }

    /// Writes the separator after the previous element, and in objects the key.
    fn element(&mut self, key: &str) -> io::Result<()> {
        if let Some((bracket, has_elements)) = self.open.last_mut() {
            let separator = if *has_elements { ",\n" } else { "\n" };
            *has_elements = true;
            let is_object = *bracket == '}';
            write!(self.out, "{separator}{:1$}", "", 2 * self.open.len())?;
            if is_object {
                self.string(key)?;
                self.out.write_all(b": ")?;
            }
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, text).map_err(io::Error::from)
    }

    /// Begins an object. The key is ignored in arrays and at the top level.
    pub(crate) fn begin_object(&mut self, key: &str) -> io::Result<()> {
        self.element(key)?;
        self.open.push(('}', false));
        self.out.write_all(b"{")
    }

    pub(crate) fn begin_array(&mut self, key: &str) -> io::Result<()> {
        self.element(key)?;
        self.open.push((']', false));
        self.out.write_all(b"[")
    }

    /// Ends the object or array that was begun last.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let Some((bracket, has_elements)) = self.open.pop() else { return Ok(()) };
        if has_elements {
            write!(self.out, "\n{:1$}", "", 2 * self.open.len())?;
        }
        write!(self.out, "{bracket}")?;
        if self.open.is_empty() {
            writeln!(self.out)?;
        }
        Ok(())
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) -> io::Result<()> {
        self.element(key)?;
        self.string(value)
    }

    pub(crate) fn integer(&mut self, key: &str, value: i64) -> io::Result<()> {
        self.element(key)?;
        write!(self.out, "{value}")
    }

    /// Writes a number with four decimals. An infinite number becomes a string, as in IOR. NaN
    /// becomes `null`: IOR writes it unchanged, but JSON does not have it.
    pub(crate) fn number(&mut self, key: &str, value: f64) -> io::Result<()> {
        self.element(key)?;
        if value.is_nan() {
            self.out.write_all(b"null")
        } else if value.is_infinite() {
            write!(self.out, "\"{value:.4}\"")
        } else {
            write!(self.out, "{value:.4}")
        }
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_separated_and_nested() {
        let mut bytes = Vec::new();
        let mut json = Json::new(&mut bytes);
        json.begin_object("").unwrap();
        json.text("a", "x\"y").unwrap();
        json.begin_array("b").unwrap();
        json.begin_object("").unwrap();
        json.number("c", 1.0 / 3.0).unwrap();
        json.number("d", f64::INFINITY).unwrap();
        json.number("e", f64::NAN).unwrap();
        json.end().unwrap();
        json.end().unwrap();
        json.begin_array("f").unwrap();
        json.end().unwrap();
        json.integer("g", -1).unwrap();
        json.end().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(
            text,
            "{\n  \"a\": \"x\\\"y\",\n  \"b\": [\n    {\n      \"c\": 0.3333,\n      \"d\": \"inf\",\n      \"e\": null\n    }\n  ],\n  \"f\": [],\n  \"g\": -1\n}\n"
        );
    }
}

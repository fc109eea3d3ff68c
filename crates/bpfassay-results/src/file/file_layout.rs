// SPDX-License-Identifier: MIT OR Apache-2.0
//! Line layout of `results.json`: one line for each thing that a reader looks for, such as a run or
//! a cell. One line per number would need 4 GB for 200,000 runs.

use std::io::{self, Write};

use serde_json::ser::Formatter;

/// Down to this depth, every key and element has its own line.
const LINES: usize = 2;

/// Formats the white space of the JSON text.
#[derive(Default)]
pub(super) struct JsonLayout {
    depth: usize,
    has_value: bool,
}

impl JsonLayout {
    fn begin<W: Write + ?Sized>(&mut self, writer: &mut W, bracket: u8) -> io::Result<()> {
        self.depth += 1;
        self.has_value = false;
        writer.write_all(&[bracket])
    }

    fn end<W: Write + ?Sized>(&mut self, writer: &mut W, bracket: u8) -> io::Result<()> {
        self.depth = self.depth.saturating_sub(1);
        if self.has_value && self.depth < LINES {
            self.line(writer)?;
        }
        writer.write_all(&[bracket])
    }

    fn line<W: Write + ?Sized>(&self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b"  "))
    }

    fn next<W: Write + ?Sized>(&self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        match self.depth {
            depth if depth <= LINES => self.line(writer),
            _ => Ok(()),
        }
    }
}

impl Formatter for JsonLayout {
    fn begin_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b'[')
    }

    fn end_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b']')
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.next(writer, first)
    }

    fn end_array_value<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }

    fn begin_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b'{')
    }

    fn end_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b'}')
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.next(writer, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(if self.depth <= LINES { b": ".as_slice() } else { b":" })
    }

    fn end_object_value<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }
}

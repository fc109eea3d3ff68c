// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON lines.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{SampleSink, TextRow, matched_lines::TimedLine};
use crate::pattern::ToolPattern;

/// Limit for fields of a line. serde_json limits nesting to 128 levels.
const MAX_FIELDS: usize = 1024;

pub(super) fn read(sink: &mut SampleSink<'_>, lines: impl Iterator<Item = TimedLine>, ignore: Option<&ToolPattern>) {
    for line in lines {
        if sink.is_full() {
            return;
        }
        if ignore.is_some_and(|ignore| ignore.regex().is_match(&line.text)) {
            continue;
        }
        object(sink, &line, |sink, row| {
            sink.report(line.at_ns);
            sink.row(line.at_ns, row, &line.text);
        });
    }
}

/// Parses `line` as an object, and passes its fields to `read`.
pub(super) fn object(
    sink: &mut SampleSink<'_>,
    line: &TimedLine,
    read: impl FnOnce(&mut SampleSink<'_>, &TextRow<'_>),
) {
    match serde_json::from_str::<Map<String, Value>>(&line.text) {
        Ok(object) => {
            let mut row = TextRow::new();
            flatten(&object, "", &mut row);
            read(sink, &row);
        }
        Err(error) => sink.unread(&line.text, &format!("no object in JSON ({error})")),
    }
}

fn flatten<'a>(object: &'a Map<String, Value>, prefix: &str, row: &mut TextRow<'a>) {
    for (key, value) in object {
        if row.len() >= MAX_FIELDS {
            return;
        }
        let name: Cow<'a, str> = if prefix.is_empty() { key.into() } else { format!("{prefix}.{key}").into() };
        match value {
            Value::Object(inner) => flatten(inner, &name, row),
            value => drop(scalar(value).map(|text| row.insert(name, text))),
        }
    }
}

/// The text of a value other than lists, objects and null. Integers keep their digits.
pub(super) fn scalar(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(value) => Some(if *value { "true" } else { "false" }.into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of JSON.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Row, Sink, lines::Line};
use crate::Pattern;

/// Most fields of a line. serde_json itself refuses what is nested more than 128 deep.
const MAX_FIELDS: usize = 1024;

pub(super) fn read(sink: &mut Sink<'_>, lines: impl Iterator<Item = Line>, ignore: Option<&Pattern>) {
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

/// Gives `read` the fields of the object that `line` is.
pub(super) fn object(sink: &mut Sink<'_>, line: &Line, read: impl FnOnce(&mut Sink<'_>, &Row<'_>)) {
    match serde_json::from_str::<Map<String, Value>>(&line.text) {
        Ok(object) => {
            let mut row = Row::new();
            flatten(&object, "", &mut row);
            read(sink, &row);
        }
        Err(error) => sink.unread(&line.text, &format!("no object in JSON ({error})")),
    }
}

fn flatten<'a>(object: &'a Map<String, Value>, prefix: &str, row: &mut Row<'a>) {
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

/// The text of a value that is neither list nor object nor null. Numbers keep the digits that whole
/// ones are written with.
pub(super) fn scalar(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(value) => Some(if *value { "true" } else { "false" }.into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

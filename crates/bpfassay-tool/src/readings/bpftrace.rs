// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of `bpftrace -f json`: one object with `type` and `data` per line (src/output.cpp, 0.14
//! to 0.23). Later versions print compiler warnings as text before the first object.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Bucket, SampleSink, TextRow, json::scalar, matched_lines::TimedLine};

/// Largest number of key parts with labels.
pub(crate) const MAX_KEYS: usize = 16;

pub(super) fn read(sink: &mut SampleSink<'_>, lines: impl Iterator<Item = TimedLine>) {
    // bpftrace reports lost events, so no such report means none were lost.
    sink.readings.lost = Some(0);
    // Text before the first object is not part of the report. It counts as unread if no object
    // follows.
    let mut unread_before = Some((sink.readings.unread, sink.readings.first_unread.clone()));
    for line in lines {
        if sink.is_full() {
            return;
        }
        let object = match serde_json::from_str::<Map<String, Value>>(&line.text) {
            Ok(object) => object,
            Err(error) => {
                sink.unread(&line.text, &format!("no object in JSON ({error})"));
                continue;
            }
        };
        if let Some(before) = unread_before.take() {
            (sink.readings.unread, sink.readings.first_unread) = before;
        }
        let data = object.get("data");
        match object.get("type").and_then(Value::as_str) {
            Some(kind @ ("map" | "stats" | "hist" | "lhist")) => {
                let first = sink.readings.samples.len();
                sink.report(line.at_ns);
                let read_map = if kind.ends_with("hist") { buckets } else { entries };
                for (map, value) in data.and_then(Value::as_object).into_iter().flatten() {
                    read_map(sink, line.at_ns, map, value, &line.text);
                }
                sink.add_up(first);
            }
            Some("lost_events") => match data.and_then(|data| data.get("events")).and_then(Value::as_u64) {
                Some(events) => sink.readings.lost = sink.readings.lost.map(|lost| lost.saturating_add(events)),
                None => sink.unread(&line.text, "lost events without a number"),
            },
            // Tools that clear their maps at every interval print `time()`. It is a report even if
            // all maps are empty and therefore not printed.
            Some("time") => sink.report(line.at_ns),
            Some(_) => {}
            None => sink.unread(&line.text, "no `type`"),
        }
    }
}

/// Reads a map: a number, an object of statistics, or either of these by key.
fn entries(sink: &mut SampleSink<'_>, at_ns: u64, map: &str, value: &Value, text: &str) {
    let Value::Object(by_key) = value else {
        entry(sink, at_ns, map, None, value, text);
        return;
    };
    // Statistics in a map without a key look like a map with the keys `count`, `average` and
    // `total`.
    if is_statistics(by_key) {
        entry(sink, at_ns, map, None, value, text);
        return;
    }
    for (key, value) in by_key {
        entry(sink, at_ns, map, Some(key), value, text);
    }
}

/// Reads a histogram: a list of buckets, or one list by key. The figure `@map.count` is its number
/// of values.
fn buckets(sink: &mut SampleSink<'_>, at_ns: u64, map: &str, value: &Value, text: &str) {
    let values: Vec<(Option<&String>, &Value)> = match value {
        Value::Object(by_key) => by_key.iter().map(|(key, value)| (Some(key), value)).collect(),
        value => vec![(None, value)],
    };
    for (key, value) in values {
        let Some(buckets) = value.as_array() else {
            sink.unread(text, &format!("`{map}` is no list of buckets"));
            continue;
        };
        let counts = buckets.iter().map(|bucket| bucket.get("count").and_then(Value::as_u64));
        match counts.sum::<Option<u64>>() {
            Some(count) => {
                let name = format!("{map}.count");
                let mut row = row_of(key);
                row.insert(name.as_str().into(), count.to_string().into());
                sink.row(at_ns, &row, text);
                sink.distribution(at_ns, &row, &name, &buckets.iter().map(shown).collect::<Vec<_>>());
            }
            None => sink.unread(text, &format!("a bucket of `{map}` has no count")),
        }
    }
    if sink.figures.iter().any(|figure| figure.value == map) {
        sink.unread(text, &format!("`{map}` has buckets and is no number: how many values it has is `{map}.count`"));
    }
}

fn is_statistics(object: &Map<String, Value>) -> bool {
    object.len() == 3 && ["count", "average", "total"].iter().all(|key| object.contains_key(*key))
}

/// Converts a bucket with a known count. The last bucket can lack an upper bound.
fn shown(bucket: &Value) -> Bucket {
    let up_to = bucket.get("max").and_then(Value::as_i64).map_or_else(|| "+Inf".to_owned(), |most| most.to_string());
    let least = bucket.get("min").and_then(Value::as_u64).unwrap_or(0);
    Bucket { least, up_to, count: bucket.get("count").and_then(Value::as_u64).unwrap_or(0) }
}

/// Creates labels from a key: the whole key and its parts.
fn row_of(key: Option<&String>) -> TextRow<'_> {
    let mut row = TextRow::new();
    if let Some(key) = key {
        row.insert("key".into(), key.into());
        for (index, part) in key.split(',').take(MAX_KEYS).enumerate() {
            row.insert(format!("key{}", index + 1).into(), part.trim().into());
        }
    }
    row
}

fn entry(sink: &mut SampleSink<'_>, at_ns: u64, map: &str, key: Option<&String>, value: &Value, text: &str) {
    let mut row = row_of(key);
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                drop(scalar(value).map(|value| row.insert(format!("{map}.{field}").into(), value)));
            }
        }
        value => drop(scalar(value).map(|value| row.insert(Cow::from(map), value))),
    }
    sink.row(at_ns, &row, text);
}

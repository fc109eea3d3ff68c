// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys, nesting, order and types of a JSON text, on one line.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

/// Returns `{Version:s,tests:[{TestID:i,…}*2],…}`, where `s` is a string, `i` an integer, and `f` a
/// figure with decimals (or IOR's text for infinity or NaN). Equal neighbours in arrays are
/// counted.
pub(crate) fn of(text: &[u8]) -> String {
    let text = without_nan(&String::from_utf8_lossy(text));
    match serde_json::from_str::<Skeleton>(&text) {
        Ok(Skeleton(skeleton)) => skeleton,
        Err(error) => format!("not JSON: {error}"),
    }
}

/// Replaces `nan` and `-nan`, as which IOR writes quotients 0/0. They are not valid JSON.
pub(crate) fn without_nan(text: &str) -> String {
    text.replace(": -nan", ": null").replace(": nan", ": null")
}

struct Skeleton(String);

impl<'de> Deserialize<'de> for Skeleton {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SkeletonVisitor).map(Self)
    }
}

struct SkeletonVisitor;

impl<'de> Visitor<'de> for SkeletonVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(if matches!(text, "inf" | "-inf") { "f" } else { "s" }.to_owned())
    }

    fn visit_u64<E>(self, _: u64) -> Result<String, E> {
        Ok("i".to_owned())
    }

    fn visit_i64<E>(self, _: i64) -> Result<String, E> {
        Ok("i".to_owned())
    }

    fn visit_f64<E>(self, _: f64) -> Result<String, E> {
        Ok("f".to_owned())
    }

    fn visit_unit<E>(self) -> Result<String, E> {
        Ok("f".to_owned())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<String, A::Error> {
        let mut counted: Vec<(String, usize)> = Vec::new();
        while let Some(Skeleton(element)) = elements.next_element()? {
            match counted.last_mut() {
                Some((last, count)) if *last == element => *count += 1,
                _ => counted.push((element, 1)),
            }
        }
        let elements: Vec<_> = counted.iter().map(|(element, count)| format!("{element}*{count}")).collect();
        Ok(format!("[{}]", elements.join(",")))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<String, A::Error> {
        let mut pairs = Vec::new();
        while let Some((key, Skeleton(value))) = entries.next_entry::<String, _>()? {
            pairs.push(format!("{key}:{value}"));
        }
        Ok(format!("{{{}}}", pairs.join(",")))
    }
}

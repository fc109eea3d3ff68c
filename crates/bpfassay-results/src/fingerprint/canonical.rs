// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints JSON with sorted keys, like [`serde_json::Value`] but without building that value.
//! Building it takes most of the time for hundreds of thousands of records.

use std::{
    borrow::Cow,
    cell::RefCell,
    io::{self, Write},
    rc::Rc,
};

use serde::Serialize;
use serde_json::{Serializer, ser::Formatter};

/// Prints values one after the other, and reuses its buffers.
#[derive(Debug, Default)]
pub(super) struct Canonical {
    text: SharedText,
    /// Buffer for sorting the members of an object.
    spare: Vec<u8>,
}

/// The text buffer that the serializer writes to and its formatter reads.
#[derive(Debug, Default, Clone)]
struct SharedText(Rc<RefCell<Vec<u8>>>);

/// A formatter that sorts the members of an object when the object is complete.
struct Sorting<'a> {
    text: SharedText,
    /// Members of each open object so far, the innermost object last.
    objects: Vec<Vec<MemberPosition>>,
    spare: &'a mut Vec<u8>,
}

/// Position of a member in the text.
#[derive(Clone, Copy)]
struct MemberPosition {
    start: usize,
    key_end: usize,
    end: usize,
}

impl Canonical {
    /// Returns the text of `value`.
    ///
    /// # Errors
    /// The errors of the value's `Serialize`.
    pub(super) fn text<T: Serialize>(&mut self, value: &T) -> serde_json::Result<impl AsRef<[u8]>> {
        self.text.0.borrow_mut().clear();
        let sorting = Sorting { text: self.text.clone(), objects: Vec::new(), spare: &mut self.spare };
        value.serialize(&mut Serializer::with_formatter(self.text.clone(), sorting))?;
        Ok(Borrowed(self.text.0.borrow()))
    }
}

/// Borrow of the text that was written last.
struct Borrowed<'a>(std::cell::Ref<'a, Vec<u8>>);

impl AsRef<[u8]> for Borrowed<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Write for SharedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sorting<'_> {
    fn here(&self) -> usize {
        self.text.0.borrow().len()
    }

    /// Returns the member that is being written.
    fn member(&mut self) -> Option<&mut MemberPosition> {
        self.objects.last_mut()?.last_mut()
    }
}

/// Returns the key whose JSON text is `text`.
fn key(text: &[u8]) -> Cow<'_, [u8]> {
    match text.contains(&b'\\') {
        // serde_json wrote it, so parsing cannot fail.
        true => serde_json::from_slice::<String>(text).map_or(Cow::Borrowed(text), |key| key.into_bytes().into()),
        false => Cow::Borrowed(text.get(1..text.len().saturating_sub(1)).unwrap_or_default()),
    }
}

/// Returns the value of `key` (with its quotes) in the object `text`, with the keys of every object
/// sorted. serde_json wrote `text` without white space.
pub(super) fn member(text: &[u8], key: &[u8]) -> Vec<u8> {
    let mut sorted = Vec::with_capacity(text.len());
    let mut at = 1;
    while let Some(name) = string(text, at) {
        let value = at + name.len() + 1;
        if name == key {
            copy(text, value, &mut sorted);
            break;
        }
        at = skip(text, value) + 1;
    }
    sorted
}

/// Returns the string that begins at `at`, with its quotes.
fn string(text: &[u8], at: usize) -> Option<&[u8]> {
    let mut rest = text.get(at..)?.strip_prefix(b"\"")?;
    let from = rest.len();
    loop {
        let stop = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        let is_end = rest.get(stop) == Some(&b'"');
        rest = rest.get(stop + if is_end { 1 } else { 2 }..)?;
        if is_end {
            return text.get(at..at + 1 + from - rest.len());
        }
    }
}

/// Returns the end of the value that begins at `at`.
fn skip(text: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    loop {
        match text.get(at) {
            None => return at,
            Some(b'"') => at += string(text, at).map_or(text.len(), <[u8]>::len),
            Some(b'{' | b'[') => (depth, at) = (depth + 1, at + 1),
            Some(b'}' | b']' | b',') if depth == 0 => return at,
            Some(b'}' | b']') => (depth, at) = (depth - 1, at + 1),
            Some(_) => at += 1,
        }
    }
}

/// Appends the value that begins at `at` to `sorted`, and returns its end. The recursion is
/// bounded, because serde_json limits nesting.
fn copy(text: &[u8], mut at: usize, sorted: &mut Vec<u8>) -> usize {
    let begin = at;
    let (open, is_object) = match text.get(at) {
        Some(b'{') => (b'{', true),
        Some(b'[') => (b'[', false),
        _ => {
            at = skip(text, at);
            sorted.extend_from_slice(text.get(begin..at).unwrap_or_default());
            return at;
        }
    };
    sorted.push(open);
    let start = sorted.len();
    let mut members: Vec<(&[u8], usize, usize)> = Vec::new();
    at += 1;
    while !matches!(text.get(at), None | Some(b'}' | b']')) {
        at += usize::from(text.get(at) == Some(&b','));
        let here = sorted.len();
        let name = if is_object { string(text, at).unwrap_or_default() } else { &[] };
        if is_object {
            sorted.extend_from_slice(name);
            sorted.push(b':');
            at += name.len() + 1;
        } else if here > start {
            sorted.push(b',');
        }
        at = copy(text, at, sorted);
        members.push((name, here, sorted.len()));
    }
    if is_object {
        members.sort_by(|(a, ..), (b, ..)| key(a).cmp(&key(b)));
        let mut object = Vec::with_capacity(sorted.len() - start + members.len());
        for (_, from, to) in members {
            if !object.is_empty() {
                object.push(b',');
            }
            object.extend_from_slice(sorted.get(from..to).unwrap_or_default());
        }
        sorted.truncate(start);
        sorted.append(&mut object);
    }
    sorted.push(if is_object { b'}' } else { b']' });
    at + 1
}

impl Formatter for Sorting<'_> {
    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.objects.push(Vec::new());
        writer.write_all(b"{")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, _writer: &mut W, _first: bool) -> io::Result<()> {
        let start = self.here();
        if let Some(object) = self.objects.last_mut() {
            object.push(MemberPosition { start, key_end: start, end: start });
        }
        Ok(())
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, _writer: &mut W) -> io::Result<()> {
        let here = self.here();
        if let Some(member) = self.member() {
            member.key_end = here;
        }
        Ok(())
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _writer: &mut W) -> io::Result<()> {
        let here = self.here();
        if let Some(member) = self.member() {
            member.end = here;
        }
        Ok(())
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        let mut members = self.objects.pop().unwrap_or_default();
        if let (Some(first), Some(last)) = (members.first().copied(), members.last().copied()) {
            let mut text = self.text.0.borrow_mut();
            let (start, end) = (first.start, last.end);
            members.sort_by(|a, b| key(&text[a.start..a.key_end]).cmp(&key(&text[b.start..b.key_end])));
            self.spare.clear();
            for (index, member) in members.iter().enumerate() {
                if index > 0 {
                    self.spare.push(b',');
                }
                self.spare.extend_from_slice(&text[member.start..member.end]);
            }
            text.truncate(start);
            // The serializer leaves commas to the formatter, and this formatter wrote none.
            debug_assert_eq!(self.spare.len(), end - start + members.len() - 1);
            text.extend_from_slice(self.spare);
        }
        writer.write_all(b"}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[derive(Serialize, Debug)]
    struct Unordered {
        z: f64,
        a: Option<u64>,
        m: HashMap<String, Vec<Inner>>,
        n: i64,
        b: bool,
    }

    #[derive(Serialize, Debug, Clone)]
    #[serde(tag = "type")]
    enum Inner {
        Zero,
        One { y: f64, x: String },
    }

    fn text(value: &impl Serialize) -> String {
        String::from_utf8(Canonical::default().text(value).unwrap().as_ref().to_vec()).unwrap()
    }

    fn inner() -> impl Strategy<Value = Inner> {
        prop_oneof![Just(Inner::Zero), (any::<f64>(), ".{0,4}").prop_map(|(y, x)| Inner::One { y, x })]
    }

    fn unordered() -> impl Strategy<Value = Unordered> {
        let keys = "[a-cZ_\"\\\\\n\u{7f}ä€/]{0,3}";
        let map = prop::collection::hash_map(keys, prop::collection::vec(inner(), 0..3), 0..6);
        (any::<f64>(), any::<Option<u64>>(), map, any::<i64>(), any::<bool>()).prop_map(|(z, a, m, n, b)| Unordered {
            z,
            a,
            m,
            n,
            b,
        })
    }

    proptest! {
        #[test]
        fn the_text_is_that_of_a_value(value in unordered()) {
            let wanted = serde_json::to_value(&value).unwrap();
            prop_assert_eq!(text(&value), wanted.to_string());
            let unsorted = format!("{{\"f\\\"\":[{{}},[1,\"}}\"]],\"of\":{}}}", serde_json::to_string(&value).unwrap());
            let found = member(unsorted.as_bytes(), b"\"of\"");
            prop_assert_eq!(String::from_utf8_lossy(&found), wanted.to_string());
            prop_assert_eq!(serde_json::from_str::<Value>(&text(&value)).unwrap(), wanted);
        }
    }

    #[test]
    fn one_writer_writes_many() {
        let mut canonical = Canonical::default();
        for wanted in [r#"{"a":{},"b":[{"c":1,"d":null}]}"#, "[]", "7"] {
            let value: Value = serde_json::from_str(wanted).unwrap();
            assert_eq!(canonical.text(&value).unwrap().as_ref(), wanted.as_bytes());
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fingerprints of raw figures, and the first difference between two runs of the same plan.
//!
//! Under the instruction clock, a run is a pure function of kernel, payload, study and seed. A
//! repetition on any machine gives the same raw figures, to the last digit. Host data, such as
//! start and duration of a run, is left out.

mod canonical;

use std::{borrow::Borrow, collections::BTreeMap};

use serde_json::Value;
use sha2::{Digest, Sha256};

use self::canonical::Canonical;
use crate::{
    JournalError, Outcome, RunRecord,
    journal::{TextPlace, Texts, hex},
};

/// SHA-256, in hexadecimal, of the raw figures of `records`, sorted by run name. A failed run
/// contributes only the kind of its failure, because its log excerpts depend on the host.
#[must_use]
pub fn fingerprint<'a, R: Borrow<RunRecord> + 'a>(records: impl IntoIterator<Item = &'a R>) -> String {
    let records = records.into_iter().map(|record| -> &'a RunRecord { record.borrow() });
    let sorted: BTreeMap<&str, &RunRecord> = records.map(|record| (record.run.as_str(), record)).collect();
    let mut hash = Sha256::new();
    let mut canonical = Canonical::default();
    for (run, record) in sorted {
        hash.update(run.as_bytes());
        hash.update(b"\n");
        // Gives the text of `raw`, in a third of the time.
        match &record.outcome {
            Outcome::Failed(_) => hash.update(raw(&record.outcome).to_string()),
            outcome => match canonical.text(outcome) {
                Ok(text) => hash.update(text),
                Err(error) => hash.update(Value::String(error.to_string()).to_string()),
            },
        }
        hash.update(b"\n");
    }
    hex(&hash.finalize())
}

/// Like [`fingerprint`], for records without their raw figures. `texts` has the figures, at the
/// place paired with each record.
///
/// # Errors
/// Fails if a text cannot be read.
pub fn of_texts<'a>(
    records: impl IntoIterator<Item = (&'a RunRecord, &'a TextPlace)>,
    texts: &Texts,
) -> Result<String, JournalError> {
    let sorted: BTreeMap<&str, (&RunRecord, &TextPlace)> =
        records.into_iter().map(|(record, place)| (record.run.as_str(), (record, place))).collect();
    let mut hash = Sha256::new();
    let places: Vec<&TextPlace> = sorted.values().map(|(_, place)| *place).collect();
    let mut records = sorted.iter();
    texts.each(
        &places,
        |text| canonical::member(text.as_bytes(), b"\"outcome\""),
        |outcome| {
            let outcome = outcome?;
            if let Some((run, (record, _))) = records.next() {
                hash.update(run.as_bytes());
                hash.update(b"\n");
                match &record.outcome {
                    Outcome::Failed(_) => hash.update(raw(&record.outcome).to_string()),
                    _ => hash.update(outcome),
                }
                hash.update(b"\n");
            }
            Ok::<(), JournalError>(())
        },
    )?;
    Ok(hex(&hash.finalize()))
}

/// One difference between two records of the same run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordDifference {
    /// The run.
    pub run: String,
    /// Place in the outcome, as a JSON pointer (RFC 6901): `/phases/0/before/monotonic_ns`.
    pub place: String,
    /// Value in the first record; `None` if it has none.
    pub first: Option<String>,
    /// Value in the second record; `None` if it has none.
    pub second: Option<String>,
}

/// Finds the first difference between the raw figures of two records, in the order of the JSON
/// text.
#[must_use]
pub fn difference(first: &RunRecord, second: &RunRecord) -> Option<RecordDifference> {
    let (a, b) = (raw(&first.outcome), raw(&second.outcome));
    let (place, first_value, second_value) = differ(&a, &b, String::new())?;
    Some(RecordDifference {
        run: first.run.clone(),
        place,
        first: shortened(first_value),
        second: shortened(second_value),
    })
}

/// Describes the first difference between two values in JSON form, as ` at PLACE: A in place of B`.
/// `None` if they are equal or have no JSON form.
#[must_use]
pub fn first_difference<T: serde::Serialize>(wanted: &T, found: &T) -> Option<String> {
    let (wanted, found) = (serde_json::to_value(wanted).ok()?, serde_json::to_value(found).ok()?);
    let (place, wanted, found) = differ(&wanted, &found, String::new())?;
    let shown = |value: Option<&Value>| shortened(value).unwrap_or_else(|| "nothing".to_owned());
    Some(format!(" at {place}: {} in place of {}", shown(found), shown(wanted)))
}

/// Prints a value, cut off after 120 characters.
fn shortened(value: Option<&Value>) -> Option<String> {
    let text = value?.to_string();
    Some(match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    })
}

fn raw(outcome: &Outcome) -> Value {
    let value = match outcome {
        Outcome::Failed(failure) => {
            serde_json::to_value(failure.kind).map(|kind| serde_json::json!({ "failed": kind }))
        }
        outcome => serde_json::to_value(outcome),
    };
    // Serializing cannot fail: these types have string keys only and no failing `Serialize`. If
    // that changes, the error text replaces the figures and a test notices.
    value.unwrap_or_else(|error| Value::String(error.to_string()))
}

fn differ<'a>(a: &'a Value, b: &'a Value, place: String) -> Option<(String, Option<&'a Value>, Option<&'a Value>)> {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let missing_in_a = || b.iter().find(|(key, _)| !a.contains_key(*key));
            a.iter()
                .find_map(|(key, value)| {
                    let place = format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"));
                    match b.get(key) {
                        Some(other) => differ(value, other, place),
                        None => Some((place, Some(value), None)),
                    }
                })
                .or_else(|| missing_in_a().map(|(key, value)| (format!("{place}/{key}"), None, Some(value))))
        }
        (Value::Array(a), Value::Array(b)) => {
            let longest = a.len().max(b.len());
            (0..longest).find_map(|index| {
                let place = format!("{place}/{index}");
                match (a.get(index), b.get(index)) {
                    (Some(a), Some(b)) => differ(a, b, place),
                    (a, b) => Some((place, a, b)),
                }
            })
        }
        (a, b) if a == b => None,
        (a, b) => Some((place, Some(a), Some(b))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_difference_is_named_by_its_place() {
        let a = json!({"x": {"a/b": [1, 2, {"c": "same"}]}, "y": 1});
        assert_eq!(differ(&a, &a.clone(), String::new()), None);
        let mut b = a.clone();
        b["x"]["a/b"][1] = json!(3);
        assert_eq!(differ(&a, &b, String::new()).unwrap().0, "/x/a~1b/1");
        let mut b = a.clone();
        b["z"] = json!(0);
        assert_eq!(differ(&a, &b, String::new()), Some(("/z".to_owned(), None, Some(&json!(0)))));
        let mut b = a.clone();
        b["x"]["a/b"].as_array_mut().unwrap().pop();
        assert_eq!(differ(&a, &b, String::new()).unwrap().0, "/x/a~1b/2");
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z/~]{0,4}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c/~]{1,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_differ_where_and_only_where_they_are_not_equal(a in values(), b in values()) {
            prop_assert_eq!(differ(&a, &b, String::new()).is_none(), a == b);
            prop_assert_eq!(differ(&b, &a, String::new()).is_none(), a == b);
        }
    }
}

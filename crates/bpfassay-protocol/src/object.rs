// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bare eBPF objects: what the tracer prints while it loads one, and how it serves its maps.
//!
//! The tracer writes one [`ObjectLine`] per line to standard output and replies to `GET /map` with a [`MapPage`] for each map, on lines of their own.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{prototype::Checked, tool::VerifierStatistics, tracer::Refusal};

/// Largest object that is loaded, in bytes.
pub const MAX_OBJECT: u64 = 16 << 20;

/// Longest body of a response with [`MapPage`]s, in bytes: less than a guest accepts of an endpoint's response.
pub const MAX_PAGE: usize = 200 << 10;

/// One line of a tracer that loads an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ObjectLine {
    /// The first line: what its programs read, compared with the kernel's BTF.
    Prototypes {
        /// The programs whose sections name a kernel function.
        checked: Vec<Checked>,
    },
    /// The first line where they could not be compared.
    PrototypesUnknown {
        /// Why.
        reason: String,
    },
    /// The second line of a bundled object, which the reader of these lines does not have: the types of its maps.
    Types {
        /// Its type information: the section `.BTF`.
        btf: Hex,
    },
    /// Once its programs are loaded, before they are attached.
    Loaded(LoadedObject),
    /// It could not be opened, loaded or attached; the tracer exits with status 3 after this line.
    Refused(Refusal),
}

/// An object whose maps are made and whose programs are loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LoadedObject {
    /// How long that took, in nanoseconds of `CLOCK_MONOTONIC`; reading the kernel's BTF is part of it.
    pub load_ns: u64,
    /// Its programs, in the order of the object.
    pub programs: Vec<VerifiedProgram>,
}

/// A program that the verifier accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct VerifiedProgram {
    /// The kernel's number for it.
    pub id: u32,
    /// What the verifier's log has of it; `None` where the kernel writes no statistics.
    pub log: Option<VerifierStatistics>,
}

/// One reading of a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MapPage {
    /// The map's name in the object.
    pub map: String,
    /// The number of copies of each value: possible CPUs for a per-CPU map, where each copy is padded to a multiple of 8 bytes; otherwise 1.
    pub copies: u32,
    /// Keys and values.
    pub entries: Vec<(Hex, Hex)>,
    /// Whether there were more than fit.
    pub cut: bool,
}

/// Bytes, as hexadecimal digits in JSON.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hex(pub Vec<u8>);

impl MapPage {
    /// A page of at most [`MAX_PAGE`] bytes of JSON: with as many of `entries` as fit. `more`: whether the map has others.
    #[must_use]
    pub fn new(map: &str, copies: u32, entries: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>, more: bool) -> Self {
        Self::within(MAX_PAGE, map, copies, entries, more)
    }

    /// The same within `most` bytes, where several pages share an answer; without entries it may be longer than that by the map's name.
    #[must_use]
    pub fn within(
        most: usize,
        map: &str,
        copies: u32,
        entries: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
        more: bool,
    ) -> Self {
        let mut page = Self { map: map.to_owned(), copies, entries: Vec::new(), cut: more };
        // The largest size of everything but entries: a name takes six bytes per character at most (`\u0000`).
        let mut length = 128 + 6 * map.len();
        for (key, value) in entries {
            length = length.saturating_add(Self::length(key.len(), value.len()));
            if length > most {
                page.cut = true;
                break;
            }
            page.entries.push((Hex(key), Hex(value)));
        }
        page
    }

    /// Bytes of JSON of an entry: digits, quotation marks, brackets and commas.
    #[must_use]
    pub const fn length(key: usize, value: usize) -> usize {
        2_usize.saturating_mul(key.saturating_add(value)).saturating_add(8)
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 0xf)]);
        let text: String = self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || de::Error::custom("not a sequence of pairs of hexadecimal digits");
        let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        if !text.len().is_multiple_of(2) {
            return Err(wrong());
        }
        let bytes = text.as_bytes().chunks_exact(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?));
        bytes.collect::<Option<Vec<u8>>>().map(Self).ok_or_else(wrong)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Hex {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Hex".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^([0-9a-f]{2})*$" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tracer::{Step, TracerLine};

    #[test]
    fn lines_are_as_documented() {
        let line = ObjectLine::Prototypes {
            checked: vec![Checked {
                program: "p".into(),
                section: "fexit/f".into(),
                differs: vec!["d".into()],
                unchecked: None,
            }],
        };
        let text =
            r#"{"type":"prototypes","checked":[{"program":"p","section":"fexit/f","differs":["d"],"unchecked":null}]}"#;
        assert_eq!(serde_json::to_string(&line).unwrap(), text);
        assert_eq!(serde_json::from_str::<ObjectLine>(text).unwrap(), line);
        assert!(serde_json::from_str::<ObjectLine>(&text.replace("\"program\"", "\"x\":1,\"program\"")).is_err());
        let types = r#"{"type":"types","btf":"9feb"}"#;
        assert_eq!(
            serde_json::from_str::<ObjectLine>(types).unwrap(),
            ObjectLine::Types { btf: Hex(vec![0x9f, 0xeb]) }
        );
        assert!(serde_json::from_str::<ObjectLine>(r#"{"type":"prototypes_unknown","reason":"r","x":1}"#).is_err());
        let log = VerifierStatistics { instructions: 9, total_states: 2, peak_states: 1, time_us: 40 };
        let loaded = LoadedObject { load_ns: 7, programs: vec![VerifiedProgram { id: 3, log: Some(log) }] };
        let text = r#"{"type":"loaded","load_ns":7,"programs":[{"id":3,"log":{"instructions":9,"total_states":2,"peak_states":1,"time_us":40}}]}"#;
        assert_eq!(serde_json::to_string(&ObjectLine::Loaded(loaded.clone())).unwrap(), text);
        assert_eq!(serde_json::from_str::<ObjectLine>(text).unwrap(), ObjectLine::Loaded(loaded));
    }

    #[test]
    fn a_refusal_is_printed_in_the_form_of_every_tracer() {
        let refusal = Refusal {
            program: Some("p".into()),
            errno: Some(13),
            verifier: Some("v".into()),
            ..Refusal::new(Step::Load, "m".into())
        };
        let line = serde_json::to_string(&ObjectLine::Refused(refusal.clone())).unwrap();
        assert_eq!(line, serde_json::to_string(&TracerLine::Refused(refusal.clone())).unwrap());
        assert_eq!(serde_json::from_str::<ObjectLine>(&line).unwrap(), ObjectLine::Refused(refusal));
    }

    #[test]
    fn bytes_are_pairs_of_digits() {
        let page = MapPage::new("counts", 1, [(vec![0x0a, 0xff], vec![])], false);
        let text = r#"{"map":"counts","copies":1,"entries":[["0aff",""]],"cut":false}"#;
        assert_eq!(serde_json::to_string(&page).unwrap(), text);
        assert_eq!(serde_json::from_str::<MapPage>(&text.replace("0aff", "0AfF")).unwrap(), page);
        for wrong in ["0aff0", "0afg", "+aff", "0a f", "éa"] {
            assert!(serde_json::from_str::<MapPage>(&text.replace("0aff", wrong)).is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<MapPage>(&text.replace("\"cut\"", "\"x\":0,\"cut\"")).is_err());
    }

    #[test]
    fn a_page_is_bounded() {
        let entries = |count: usize| (0..count).map(|_| (vec![1; 72], vec![2; 24]));
        let page = MapPage::new("counts", 1, entries(5000), false);
        let length = serde_json::to_vec(&page).unwrap().len();
        assert!(page.cut && length <= MAX_PAGE && length > MAX_PAGE - 1000, "{length}");
        assert!(!MapPage::new("counts", 1, entries(900), false).cut);
        assert!(MapPage::new("counts", 1, entries(1), true).cut);
        assert!(MapPage::new("counts", 1, [(vec![0; MAX_PAGE], vec![])], false).entries.is_empty());
    }

    proptest! {
        #[test]
        fn any_entries_come_back_within_the_bound(
            name: String,
            copies: u32,
            entries in proptest::collection::vec(any::<(Vec<u8>, Vec<u8>)>(), 0..40),
        ) {
            let page = MapPage::new(&name, copies, entries, false);
            let text = serde_json::to_string(&page).unwrap();
            prop_assert!(text.len() <= MAX_PAGE);
            prop_assert_eq!(serde_json::from_str::<MapPage>(&text).unwrap(), page);
        }
    }
}

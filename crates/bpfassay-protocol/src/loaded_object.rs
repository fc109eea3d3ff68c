// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bare eBPF objects: the tracer's output while it loads one, and the format of its maps.
//!
//! The tracer writes one [`ObjectLine`] per line to standard output. It replies to `GET /map` with
//! a [`MapPage`] for each map, one per line.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{checked_prototype::Checked, tool_job::VerifierStatistics, tracer_messages::Refusal};

/// Largest object that is loaded, in bytes.
pub const MAX_OBJECT: u64 = 16 << 20;

/// Longest response with [`MapPage`]s, in bytes. It is below the guest's limit for endpoints.
pub const MAX_PAGE: usize = 200 << 10;

/// One line of a tracer that loads an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ObjectLine {
    /// The first line: the data that programs read, compared with the kernel's BTF.
    Prototypes {
        /// The programs whose section names a kernel function.
        checked: Vec<Checked>,
    },
    /// The first line if the comparison was not possible.
    PrototypesUnknown {
        /// The reason.
        reason: String,
    },
    /// The second line for a bundled object: the types of its maps, which the reader lacks.
    Types {
        /// The section `.BTF` of the object.
        btf: Hex,
    },
    /// The programs are loaded, and attached if their sections name targets.
    Loaded(LoadedObject),
    /// The object could not be opened, loaded or attached. The tracer then exits with status 3.
    Refused(Refusal),
}

/// An object with maps created and programs loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LoadedObject {
    /// Time to load the object and to read the kernel's BTF, in nanoseconds of `CLOCK_MONOTONIC`.
    pub load_ns: u64,
    /// The programs, in the order of the object.
    pub programs: Vec<VerifiedProgram>,
    /// The programs that are not attached, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unattached: Vec<UnattachedProgram>,
}

/// A loaded program whose section does not say to what it is to be attached: only a loader of its
/// own can attach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UnattachedProgram {
    /// The name of the program in the object.
    pub program: String,
    /// The name of its section.
    pub section: String,
}

/// A program that the verifier accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct VerifiedProgram {
    /// The kernel's id of the program.
    pub id: u32,
    /// Statistics in the verifier's log; `None` if the kernel writes none.
    pub log: Option<VerifierStatistics>,
}

/// One reading of a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MapPage {
    /// The map's name in the object.
    pub map: String,
    /// Number of copies of each value. For a per-CPU map it is the number of possible CPUs, and
    /// each copy is padded to a multiple of 8 bytes. Otherwise it is 1.
    pub copies: u32,
    /// Keys and values.
    pub entries: Vec<(Hex, Hex)>,
    /// Whether entries are missing because they did not fit.
    pub cut: bool,
}

/// Bytes that JSON represents as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hex(pub Vec<u8>);

impl MapPage {
    /// A page of at most [`MAX_PAGE`] bytes of JSON with as many of `entries` as fit. `more` says
    /// whether the map has other entries.
    #[must_use]
    pub fn new(map: &str, copies: u32, entries: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>, more: bool) -> Self {
        Self::within(MAX_PAGE, map, copies, entries, more)
    }

    /// Like [`Self::new`], but within `most` bytes, if several pages share a response. Without
    /// entries, a page can exceed `most` by the map's name.
    #[must_use]
    pub fn within(
        most: usize,
        map: &str,
        copies: u32,
        entries: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
        more: bool,
    ) -> Self {
        let mut page = Self { map: map.to_owned(), copies, entries: Vec::new(), cut: more };
        // Maximum size without entries. A character of the name takes up to six bytes (`\u0000`).
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

    /// Returns the size of an entry in JSON: digits, quotation marks, brackets and commas.
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
    use crate::tracer_messages::{Step, TracerLine};

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
        let mut loaded = LoadedObject {
            load_ns: 7,
            programs: vec![VerifiedProgram { id: 3, log: Some(log) }],
            unattached: Vec::new(),
        };
        let text = r#"{"type":"loaded","load_ns":7,"programs":[{"id":3,"log":{"instructions":9,"total_states":2,"peak_states":1,"time_us":40}}]}"#;
        assert_eq!(serde_json::to_string(&ObjectLine::Loaded(loaded.clone())).unwrap(), text);
        assert_eq!(serde_json::from_str::<ObjectLine>(text).unwrap(), ObjectLine::Loaded(loaded.clone()));
        loaded.unattached.push(UnattachedProgram { program: "x".into(), section: "xdp".into() });
        let text = text.replace("]}", r#"],"unattached":[{"program":"x","section":"xdp"}]}"#);
        assert_eq!(serde_json::to_string(&ObjectLine::Loaded(loaded.clone())).unwrap(), text);
        assert_eq!(serde_json::from_str::<ObjectLine>(&text).unwrap(), ObjectLine::Loaded(loaded));
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

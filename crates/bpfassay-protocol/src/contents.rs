// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contents of the maps and constants of a bare eBPF object before its programs are attached, as a loader of its own would set them.
//!
//! A tool file has them, the host checks them against the object's types, and the tracer that loads the object receives them as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Values by the names of fields (`outer.inner`); a key or value that is no structure is the field `key` or `value`. The others are 0.
pub type Fields = BTreeMap<String, Constant>;

/// What is set in an object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Contents {
    /// Entries of maps, set in this order once the object is loaded and before any program is attached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<MapEntry>,
    /// Global variables of the sections `.rodata`, set before the object is loaded: the verifier treats them as constants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rodata: Fields,
}

impl Contents {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.rodata.is_empty()
    }
}

/// One entry of a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MapEntry {
    /// The map's name in the object.
    pub map: String,
    /// Its key.
    pub key: Fields,
    /// Its value; each copy of it, in a per-CPU map.
    pub value: Fields,
}

/// The value of a field or a variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Constant {
    /// A number, a boolean or an enumerator.
    Number(i64),
    /// Characters; a NUL follows.
    Text(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_compact_json() {
        let text = r#"{"set":[{"map":"conf","key":{"key":0},"value":{"magic":-1,"name":"x"}}],"rodata":{"pid":7}}"#;
        let contents: Contents = serde_json::from_str(text).unwrap();
        assert_eq!(contents.set[0].value["magic"], Constant::Number(-1));
        assert_eq!(contents.set[0].value["name"], Constant::Text("x".to_owned()));
        assert_eq!(serde_json::to_string(&contents).unwrap(), text);
        assert!(Contents::default().is_empty() && !contents.is_empty());
        assert!(serde_json::from_str::<Contents>(r#"{"sets":[]}"#).is_err());
    }
}

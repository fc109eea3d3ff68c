// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contents of the maps and constants of a bare eBPF object, set before its programs are attached,
//! as the object's usual loader would do.
//!
//! A tool file defines the contents, the host checks them against the object's types, and the
//! tracer that loads the object receives them as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Values by field names (`outer.inner`). The name is `key` or `value` for a key or value that is
/// not a structure. Missing fields are 0.
pub type Fields = BTreeMap<String, Constant>;

/// Contents to be set in an object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Contents {
    /// Map entries, set in this order after loading the object and before attaching programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<MapEntry>,
    /// Global variables in `.rodata` sections, set before the object is loaded. The verifier treats
    /// them as constants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rodata: Fields,
}

impl Contents {
    /// Whether there is nothing to set.
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
    /// The key of the entry.
    pub key: Fields,
    /// The value of the entry. A per-CPU map has it on every CPU.
    pub value: Fields,
}

/// The value of a field or variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Constant {
    /// A number, a boolean or an enumerator.
    Number(i64),
    /// A string, which is followed by a NUL.
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

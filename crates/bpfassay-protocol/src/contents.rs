// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contents and sizes of the maps, and constants of a bare eBPF object, set before its programs are
//! attached, as the object's usual loader would do.
//!
//! A tool file defines the contents, the host checks them against the object's types, and the
//! tracer that loads the object receives them as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names;

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
    /// Sizes of maps, set before the object is loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<MapSize>,
}

impl Contents {
    /// Whether there is nothing to set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.rodata.is_empty() && self.maps.is_empty()
    }
}

/// The size of a map, as the object's usual loader sets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MapSize {
    /// The map's name in the object.
    pub name: String,
    /// The largest number of entries; `None` keeps that of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_entries: Option<u32>,
    /// What the maps in this map of maps are like; `None` keeps what the object says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner: Option<InnerMap>,
}

/// The maps in a map of maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct InnerMap {
    /// The type.
    pub kind: InnerKind,
    /// Size of a key in bytes.
    pub key_size: u32,
    /// Size of a value in bytes.
    pub value_size: u32,
    /// The largest number of entries.
    pub max_entries: u32,
}

names! {
    /// The type of a map in a map of maps (`enum bpf_map_type` of include/uapi/linux/bpf.h).
    pub enum InnerKind: "type of an inner map" {
        /// `BPF_MAP_TYPE_HASH`.
        Hash = "hash",
        /// `BPF_MAP_TYPE_ARRAY`.
        Array = "array",
        /// `BPF_MAP_TYPE_PERCPU_HASH`.
        PercpuHash = "percpu-hash",
        /// `BPF_MAP_TYPE_PERCPU_ARRAY`.
        PercpuArray = "percpu-array",
        /// `BPF_MAP_TYPE_LRU_HASH`.
        LruHash = "lru-hash",
    }
}

impl InnerKind {
    /// Returns the kernel's number of the type.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Hash => 1,
            Self::Array => 2,
            Self::PercpuHash => 5,
            Self::PercpuArray => 6,
            Self::LruHash => 9,
        }
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
        let text = r#"{"set":[{"map":"conf","key":{"key":0},"value":{"magic":-1,"name":"x"}}],"rodata":{"pid":7},"maps":[{"name":"counts","max_entries":2,"inner":{"kind":"percpu-hash","key_size":4,"value_size":8,"max_entries":1}}]}"#;
        let contents: Contents = serde_json::from_str(text).unwrap();
        assert_eq!(contents.set[0].value["magic"], Constant::Number(-1));
        assert_eq!(contents.set[0].value["name"], Constant::Text("x".to_owned()));
        assert_eq!(serde_json::to_string(&contents).unwrap(), text);
        assert!(Contents::default().is_empty() && !contents.is_empty());
        assert!(serde_json::from_str::<Contents>(r#"{"sets":[]}"#).is_err());
    }
}

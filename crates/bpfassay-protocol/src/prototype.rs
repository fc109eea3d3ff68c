// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of comparing what an object's programs read with the prototypes of the kernel's functions.

use serde::{Deserialize, Serialize};

/// The result for one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Checked {
    /// Name of its function.
    pub program: String,
    /// Its section.
    pub section: String,
    /// Where it does not match the kernel's prototype, one line each.
    pub differs: Vec<String>,
    /// Why it could not be checked wholly; `None`: it was.
    pub unchecked: Option<String>,
}

/// The results for the programs of an object whose sections name a kernel function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Prototypes(pub Vec<Checked>);

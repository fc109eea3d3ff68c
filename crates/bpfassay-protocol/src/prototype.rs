// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a look at an object's programs beside the prototypes of the kernel's functions shows.

use serde::{Deserialize, Serialize};

/// What was found of one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Checked {
    /// Name of its function.
    pub program: String,
    /// Its section.
    pub section: String,
    /// Where it does not fit to the kernel's prototype, one line each.
    pub differs: Vec<String>,
    /// Why it could not be checked wholly; `None`: it was.
    pub unchecked: Option<String>,
}

/// What was found of the programs of an object whose sections name a kernel function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Prototypes(pub Vec<Checked>);

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments that programs read, compared with the prototypes of kernel functions.

use serde::{Deserialize, Serialize};

/// The result for one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Checked {
    /// Name of the program's function.
    pub program: String,
    /// Section of the program.
    pub section: String,
    /// Differences from the kernel's prototype, one line each.
    pub differs: Vec<String>,
    /// The reason for an incomplete check; `None` if the check was complete.
    pub unchecked: Option<String>,
}

/// The results for the programs of an object whose sections name a kernel function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Prototypes(pub Vec<Checked>);

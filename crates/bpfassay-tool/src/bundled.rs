// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool files compiled into this crate. The objects that they name are compiled into the
//! bundled tracer. It loads them by name and reports their types (`bpfassay-tracer object
//! --bundled`).

// Defines `TOOLS` (pairs of name and text) and `TOOL_NAMES`, sorted by name, from tools/*.toml.
include!(concat!(env!("OUT_DIR"), "/bundled.rs"));

/// Names of the bundled tools.
pub const NAMES: &[&str] = TOOL_NAMES;

/// Returns the text of the bundled tool file `name`.
#[must_use]
pub fn tool(name: &str) -> Option<&'static str> {
    TOOLS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The studies and IOR scripts compiled into this crate.

// Defines `STUDIES` and `SCRIPTS`: pairs of name and text, sorted by name. The texts come from
// studies/*.toml and ior-configs/*.ior.
include!(concat!(env!("OUT_DIR"), "/bundled.rs"));

/// Names of the bundled studies.
pub const NAMES: &[&str] = STUDY_NAMES;

/// Returns the text of the bundled study `name`.
#[must_use]
pub fn study(name: &str) -> Option<&'static str> {
    find(STUDIES, name)
}

/// Returns the text of the bundled IOR script `file_name`.
#[must_use]
pub fn script(file_name: &str) -> Option<&'static str> {
    find(SCRIPTS, file_name)
}

/// Lists the file names of the bundled IOR scripts.
pub fn script_names() -> impl Iterator<Item = &'static str> {
    SCRIPTS.iter().map(|(name, _)| *name)
}

fn find(list: &[(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    list.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

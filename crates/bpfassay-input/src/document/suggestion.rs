// SPDX-License-Identifier: MIT OR Apache-2.0
//! Suggests the nearest known name, and shortens text of a file for messages.

use std::path::Path;

/// Lowest Jaro-Winkler similarity of a name that is suggested.
const CLOSE: f64 = 0.75;

/// Returns the nearest of `known`, if it is near enough to be suggested.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(score, _)| *score >= CLOSE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Returns the end of a message about an unknown `name`: a suggestion with its `; `, or nothing.
pub fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

/// Returns whether `name` is the name of a file rather than of something bundled. It is if it looks
/// like a path, or if a file of that name exists.
#[must_use]
pub fn is_file_name(name: &str) -> bool {
    let path = Path::new(name);
    name.contains('/') || path.extension().is_some_and(|extension| extension == "toml") || path.exists()
}

/// Cuts `text` to a length that fits into a message.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

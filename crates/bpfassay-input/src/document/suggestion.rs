// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names: the nearest known one, and text from a file in messages.

use std::path::Path;

/// Names that are closer than this (Jaro-Winkler) are suggested.
const CLOSE: f64 = 0.75;

/// The nearest of `known`, if one is near enough to be suggested.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(score, _)| *score >= CLOSE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// For the end of a message that none of `known` is called `name`: a suggestion that begins with `;
/// `, or nothing.
pub fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

/// Whether `name` names a file rather than something bundled: it looks like a path, or there is a
/// file of that name.
#[must_use]
pub fn is_file_name(name: &str) -> bool {
    let path = Path::new(name);
    name.contains('/') || path.extension().is_some_and(|extension| extension == "toml") || path.exists()
}

/// `text` cut to a length that a message can hold.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

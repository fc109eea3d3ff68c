// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of a drafted tool file.

use std::{borrow::Cow, collections::BTreeSet};

use bpfassay_protocol::Operation;
use textwrap::{Options, WordSeparator::AsciiSpace, WordSplitter::NoHyphenation, WrapAlgorithm::FirstFit};

use crate::{
    TOOL_SCHEMA,
    file::{CountedUnit, Whose},
    read::MAX_ENTRIES,
};

/// Largest number of characters of untrusted text in a comment.
const MOST_SHOWN: usize = 120;
/// Largest width of a comment, in columns.
const WIDTH: usize = 100;

/// The parts of a drafted tool file.
#[derive(Debug, Default)]
pub(super) struct ToolDraft {
    /// Name of the source. The tool's name is derived from it.
    pub(super) name: String,
    /// Line that names the source.
    pub(super) seen: String,
    /// The lines of `[source]`.
    pub(super) source: Vec<String>,
    /// The lines of `[start]`.
    pub(super) start: Vec<String>,
    /// The lines of `[report]`, without figures.
    pub(super) report: Vec<String>,
    /// Values that could be figures.
    pub(super) figures: Vec<DraftFigure>,
}

/// A value that could be a figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DraftFigure {
    pub(super) value: String,
    pub(super) labelled: Vec<(String, String)>,
    /// The operations; empty if the user must decide.
    pub(super) operations: Vec<Operation>,
    pub(super) unit: Option<CountedUnit>,
    pub(super) scale: u64,
    pub(super) whose: Whose,
    pub(super) label: Option<String>,
}

impl DraftFigure {
    /// Whether a tool file can name all parts of the figure.
    fn is_readable(&self) -> bool {
        is_name(&self.value)
            && self.label.as_deref().is_none_or(is_name)
            && self.labelled.iter().all(|(key, value)| is_name(key) && value.len() <= 255)
    }

    /// Formats an entry of `figures`, with a comment about open decisions.
    fn line(&self) -> String {
        let mut parts = vec![format!("value = {}", quoted(&self.value))];
        if !self.labelled.is_empty() {
            let labels: Vec<String> =
                self.labelled.iter().map(|(key, value)| format!("{} = {}", key_of(key), quoted(value))).collect();
            parts.push(format!("where = {{ {} }}", labels.join(", ")));
        }
        let operations = if self.operations.is_empty() { &[Operation::Read][..] } else { &self.operations };
        let operations: Vec<String> = operations.iter().map(|operation| quoted(operation.name())).collect();
        parts.push(format!("operations = [{}]", operations.join(", ")));
        parts.push(format!("unit = {}", quoted(self.unit.unwrap_or(CountedUnit::Calls).name())));
        if self.scale != 1 {
            parts.push(format!("scale = {}", self.scale));
        }
        if let Some(label) = &self.label {
            parts.push(format!("whose = {}, label = {}", quoted(self.whose.name()), quoted(label)));
        }
        let open: Vec<&str> = [("operations", self.operations.is_empty()), ("unit", self.unit.is_none())]
            .into_iter()
            .filter_map(|(key, is_open)| is_open.then_some(key))
            .collect();
        let open = if open.is_empty() { String::new() } else { format!("  # decide: {}", open.join(" and ")) };
        format!("{{ {} }},{open}", parts.join(", "))
    }
}

impl ToolDraft {
    /// Formats the whole file.
    pub(super) fn text(&self) -> String {
        let name = short_name(&self.name);
        let mut lines = vec![
            format!("# Written by `bpfassay tool init` from a look at {}.", shown(&self.seen)),
            "# Lines that begin with `#` and no blank are proposals: remove the `#` from each line that is right. \
             docs/reference/tool-file.md explains every key."
                .to_owned(),
            format!("schema = {TOOL_SCHEMA}"),
            "[tool]".to_owned(),
            format!("name = {}", quoted(&name)),
            "# Decide: what it is, in one line.".to_owned(),
            format!("description = {}", quoted(&name)),
            "[source]".to_owned(),
        ];
        lines.extend(self.source.iter().cloned());
        if !self.start.is_empty() {
            lines.push("[start]".to_owned());
            lines.extend(self.start.iter().cloned());
        }
        if !self.report.is_empty() {
            lines.push(
                "# What the tool reports. Without this part, bpfassay checks whether the tool loads and what it costs, but no \
                 figures."
                    .to_owned(),
            );
            lines.push("#[report]".to_owned());
            lines.extend(self.report.iter().cloned());
            lines.extend(self.lines_of_figures());
        }
        lines.iter().flat_map(|part| part.lines()).flat_map(|line| [wrapped(line), Cow::Borrowed("\n")]).collect()
    }

    fn lines_of_figures(&self) -> Vec<String> {
        let operations = Operation::ALL.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(", ");
        let units = CountedUnit::ALL.map(CountedUnit::name).join(", ");
        let mut known = BTreeSet::new();
        let figures: Vec<String> = self
            .figures
            .iter()
            .filter(|figure| figure.is_readable())
            .map(DraftFigure::line)
            .filter(|line| known.insert(line.clone()))
            .collect();
        let mut lines = vec![
            "# Decide for each figure what it counts. Only those that are right may stay.".to_owned(),
            format!("# operations: {operations}"),
            format!("# unit: {units}; scale = 1024 where it prints KiB"),
            "# whose: system (default), cgroup, mount, process; label: what names that one".to_owned(),
            "#figures = [".to_owned(),
        ];
        lines.extend(figures.iter().take(MAX_ENTRIES).map(|figure| format!("#{figure}")));
        if figures.is_empty() {
            lines.push("# Nothing was seen that may be a figure.".to_owned());
        }
        if figures.len() > MAX_ENTRIES {
            lines.push(format!("# {} more were seen, and {MAX_ENTRIES} may be given.", figures.len() - MAX_ENTRIES));
        }
        lines.push("#]".to_owned());
        lines
    }
}

/// Breaks a comment between words, so that each line fits [`WIDTH`]. Proposals stay whole.
fn wrapped(line: &str) -> Cow<'_, str> {
    if !line.starts_with("# ") {
        return Cow::Borrowed(line);
    }
    let options = Options::new(WIDTH).subsequent_indent("# ").break_words(false);
    let options = options.word_separator(AsciiSpace).word_splitter(NoHyphenation).wrap_algorithm(FirstFit);
    Cow::Owned(textwrap::fill(line, options))
}

/// Formats `text` as a TOML string.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric() => quoted.push(c),
            // Escapes keep invisible characters out. Another program could replace them when
            // printing the text, which would break the TOML.
            c if u32::from(c) <= 0xffff => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}

/// Formats `text` as a TOML key.
pub(super) fn key_of(text: &str) -> String {
    let is_bare = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if is_bare { text.to_owned() } else { quoted(text) }
}

/// Makes `text` safe for a comment.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(MOST_SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MOST_SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

/// Joins names for a comment: as many as fit, and the number of the others.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(shown).collect();
    let mut length = 0;
    let fitting = names.iter().take_while(|name| {
        length += name.chars().count() + 2;
        length <= MOST_SHOWN
    });
    // A single long name is cut by `shown`.
    let fitting = fitting.count().max(1).min(names.len());
    let more = names.len() - fitting;
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    names[..fitting].join(", ") + &more
}

/// Whether a tool file can use this name for a value, label or map.
pub(super) fn is_name(text: &str) -> bool {
    (1..=127).contains(&text.len()) && text.chars().all(|c| c.is_ascii_graphic())
}

/// Derives a tool name from a file name.
fn short_name(text: &str) -> String {
    let stem = text
        .strip_suffix(".bpf.o")
        .or_else(|| text.rsplit_once('.').map(|(stem, _)| stem).filter(|stem| !stem.is_empty()));
    let lower = stem.unwrap_or(text).to_ascii_lowercase();
    let fitting = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' { c } else { '-' };
    let name: String = lower.chars().map(fitting).take(40).collect();
    let name = name.trim_matches(['-', '.']);
    if name.is_empty() { "tool".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_nothing_in_them_that_a_terminal_does_not_show() {
        for (text, expected) in [
            ("a\u{202e}b.o", r#""a\u202eb.o""#),
            ("\u{e0041}", r#""\U000e0041""#),
            ("\u{1b}[2J\u{9b}\n", r#""\u001b[2J\u009b\u000a""#),
            ("plain \"é\" \\ 名", r#""plain \"é\" \\ 名""#),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn no_name_of_a_list_is_cut() {
        assert_eq!(listed([]), "");
        assert_eq!(listed(["a", "b\n"]), "a, b ");
        let names: Vec<String> = (10..60).map(|number| format!("program_{number}")).collect();
        let text = listed(names.iter().map(String::as_str));
        let (list, more) = text.split_once(" and ").unwrap();
        assert!(
            list.len() <= MOST_SHOWN && list.split(", ").all(|name| names.iter().any(|known| known == name)),
            "{text}"
        );
        assert_eq!(more, format!("{} more", 50 - list.split(", ").count()));
        let long = "x".repeat(500);
        assert_eq!(listed([long.as_str(), "y"]), format!("{}… and 1 more", "x".repeat(MOST_SHOWN)));
    }
}

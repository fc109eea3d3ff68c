// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the maps of a bpftrace script, and what it stores in them. The text is scanned, not
//! parsed: unrecognized parts are skipped.

use std::{borrow::Cow, collections::BTreeSet};

use bpfassay_input::document::suggestion;

use crate::{file::Report, readings::ReadingsError};

/// Largest number of maps, and most keys of a map, that are looked at.
const MOST: usize = 64;
/// Longest key in bytes.
const MOST_OF_KEY: usize = 4096;
/// Longest map name in bytes; no figure has a longer name.
const MOST_OF_NAME: usize = 127;

/// Whether the file `name` with this `text` is a bpftrace script.
pub(crate) fn is_script(name: &str, text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    name.ends_with(".bt") || (first.starts_with("#!") && first.contains("bpftrace"))
}

/// Probes and their action block.
pub(crate) struct Clause<'a> {
    pub(crate) probes: Vec<&'a str>,
    pub(crate) body: &'a str,
}

/// A change of a map.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MapChange {
    pub(crate) map: String,
    pub(crate) keys: Vec<String>,
    pub(crate) what: What,
}

/// How a change stores its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// Adds one.
    Count,
    /// Adds an amount.
    Sum,
    /// Adds a value to a histogram.
    Histogram,
    /// Adds a value to statistics with count and total.
    Statistics,
    /// Anything else, which gives no figure.
    Other,
}

/// Replaces the comments in `text` by blanks.
pub(crate) fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let (mut in_text, mut begins_line) = (false, true);
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('\\', Some(_)) if in_text => code.extend([Some(c), rest.next()].into_iter().flatten()),
            ('"', _) => {
                in_text = !in_text;
                code.push(c);
            }
            ('/', Some('/')) if !in_text => while rest.next_if(|&c| c != '\n').is_some() {},
            ('/', Some('*')) if !in_text => {
                rest.next();
                let mut before = ' ';
                for c in rest.by_ref() {
                    if (before, c) == ('*', '/') {
                        break;
                    }
                    before = c;
                }
                code.push(' ');
            }
            // `#!` lines and preprocessor directives.
            ('#', _) if begins_line && !in_text => while rest.next_if(|&c| c != '\n').is_some() {},
            (c, _) => code.push(c),
        }
        begins_line = c == '\n' || (begins_line && c.is_whitespace());
    }
    code
}

/// Byte offset of the bracket that closes the one at the start of `open`. Skips string literals.
fn closed(open: &str, [begin, end]: [char; 2]) -> Option<usize> {
    let (mut depth, mut in_text, mut escaped) = (0_u32, false, false);
    for (at, c) in open.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_text => escaped = true,
            '"' => in_text = !in_text,
            _ if in_text => {}
            c if c == begin => depth += 1,
            c if c == end => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Splits a script into clauses.
pub(crate) fn clauses(code: &str) -> Vec<Clause<'_>> {
    let mut clauses = Vec::new();
    let mut rest = code;
    while let Some(open) = rest.find('{') {
        let Some(length) = closed(&rest[open..], ['{', '}']) else { break };
        let head = rest[..open].rsplit(';').next().unwrap_or_default();
        // A filter follows a blank and begins with `/`; paths of uprobes follow a colon.
        let filter =
            head.char_indices().zip(head.chars().skip(1)).find(|((_, c), next)| c.is_whitespace() && *next == '/');
        let probes = filter.map_or(head, |((at, _), _)| &head[..at]);
        let probes = probes.split(',').map(str::trim).filter(|probe| !probe.is_empty()).collect();
        clauses.push(Clause { probes, body: &rest[open..=open + length] });
        rest = &rest[open + length + 1..];
    }
    clauses
}

/// Finds the map changes in the body of a clause.
pub(crate) fn changes(body: &str) -> Vec<MapChange> {
    let mut changes = Vec::new();
    let (mut in_text, mut escaped) = (false, false);
    for (at, c) in body.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_text => escaped = true,
            '"' => in_text = !in_text,
            _ => {}
        }
        if in_text || c != '@' {
            continue;
        }
        let rest = &body[at..];
        let end = rest[1..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(rest.len(), |end| end + 1);
        let (map, mut after) = rest.split_at(end);
        let mut keys = Vec::new();
        if after.trim_start().starts_with('[') {
            after = after.trim_start();
            let near = after.get(..MOST_OF_KEY).unwrap_or(after);
            let Some(length) = closed(near, ['[', ']']) else { continue };
            keys = parts(&after[1..length]);
            after = &after[length + 1..];
        }
        let after = after.trim_start();
        let value = after.strip_prefix('=').filter(|value| !value.starts_with('=')).map(str::trim_start);
        let what = match value {
            Some(value) => [
                ("count(", What::Count),
                ("sum(", What::Sum),
                ("hist(", What::Histogram),
                ("lhist(", What::Histogram),
                ("avg(", What::Statistics),
                ("stats(", What::Statistics),
            ]
            .iter()
            .find_map(|(call, what)| value.starts_with(call).then_some(*what))
            .unwrap_or(What::Other),
            None if after.starts_with("++") => What::Count,
            None if after.starts_with("+=") => What::Sum,
            None => continue,
        };
        if map.len() <= MOST_OF_NAME && changes.len() < MOST && keys.len() <= MOST {
            changes.push(MapChange { map: map.to_owned(), keys, what });
        }
    }
    changes
}

/// Splits a key at commas outside brackets and string literals.
fn parts(key: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut depth, mut in_text) = (0_u32, false);
    for c in key.chars() {
        match c {
            '"' => in_text = !in_text,
            '(' | '[' if !in_text => depth += 1,
            ')' | ']' if !in_text => depth = depth.saturating_sub(1),
            ',' if !in_text && depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts.iter().map(|part| part.trim().to_owned()).collect()
}

/// Checks that the script has the maps that figures in `report` name, and the keys that they need.
/// Everything that an imported file could define is accepted.
///
/// # Errors
/// [`ReadingsError::NoScriptMap`] for a map that is not in `text`; [`ReadingsError::NoScriptKey`]
/// for a key part that no use of the map has.
pub(crate) fn check(report: &Report, text: &str) -> Result<(), ReadingsError> {
    let code = without_comments(text);
    // Since version 0.24, bpftrace can import maps from other files.
    if code.lines().any(|line| line.trim_start().starts_with("import ")) {
        return Ok(());
    }
    let places: Vec<(&str, Option<Vec<String>>)> = places(&code);
    for figure in &report.figures {
        let map = figure.value.split_once('.').map_or(figure.value.as_str(), |(map, _)| map);
        if places.iter().all(|(known, _)| *known != map) {
            let known: BTreeSet<&str> = places.iter().map(|(known, _)| *known).collect();
            return Err(ReadingsError::NoScriptMap {
                map: map.to_owned(),
                nearest: suggestion(map, known.iter().copied()),
                known: known.into_iter().collect::<Vec<_>>().join(", "),
            });
        }
        for (label, wanted) in &figure.labelled {
            let Some(known) = literals(label, map, &places) else { continue };
            if !known.contains(wanted.as_str()) {
                return Err(ReadingsError::NoScriptKey {
                    map: map.to_owned(),
                    label: label.clone(),
                    wanted: wanted.clone(),
                    nearest: suggestion(wanted, known.iter().map(AsRef::as_ref)),
                    known: known.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", "),
                });
            }
        }
    }
    Ok(())
}

/// All values of the key part `label` of `map` in the script; `None` if they are not certain.
fn literals<'p>(label: &str, map: &str, places: &'p [(&str, Option<Vec<String>>)]) -> Option<BTreeSet<Cow<'p, str>>> {
    let of_map = || places.iter().filter(|(known, _)| *known == map);
    let part = match label.strip_prefix("key")? {
        // `key` is the whole key, so all keys must have one part.
        "" => of_map().all(|(_, keys)| keys.as_ref().is_none_or(|keys| keys.len() == 1)).then_some(0)?,
        number => number.parse::<usize>().ok()?.checked_sub(1)?,
    };
    // Uses without a key print, clear or pass on the map.
    let keys = of_map().filter_map(|(_, keys)| keys.as_ref());
    let literals: BTreeSet<Cow<'_, str>> = keys.map(|keys| literal(keys.get(part)?)).collect::<Option<_>>()?;
    (!literals.is_empty()).then_some(literals)
}

/// Returns the string or integer literal that the expression consists of.
fn literal(expression: &str) -> Option<Cow<'_, str>> {
    let text = expression.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let is_plain = |text: &&str| !text.contains(['"', '\\']);
    match text {
        Some(text) => Some(text).filter(is_plain).map(Cow::Borrowed),
        None => (!expression.is_empty() && expression.bytes().all(|byte| byte.is_ascii_digit()))
            .then_some(expression.into()),
    }
}

/// Finds every use of a map, with its key parts if it has a key.
fn places(code: &str) -> Vec<(&str, Option<Vec<String>>)> {
    let mut places = Vec::new();
    let (mut in_text, mut escaped) = (false, false);
    for (at, c) in code.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_text => escaped = true,
            '"' => in_text = !in_text,
            '@' if !in_text => places.push(place(&code[at..])),
            _ => {}
        }
    }
    places
}

/// Reads the map name at the start of `rest`, and its key parts. A key that is not understood has
/// one part, which is not a literal.
fn place(rest: &str) -> (&str, Option<Vec<String>>) {
    let end = rest[1..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(rest.len(), |end| end + 1);
    let (map, after) = rest.split_at(end);
    let after = after.trim_start();
    let keys = after.starts_with('[').then(|| {
        let near = after.get(..MOST_OF_KEY).unwrap_or(after);
        closed(near, ['[', ']']).map_or_else(|| vec![String::new()], |length| parts(&after[1..length]))
    });
    (map, keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::ToolFile;

    fn refusal(figures: &str, script: &str) -> Option<String> {
        let text = format!(
            "schema = 1\n[tool]\nname = 'x'\ndescription = 'x'\n[source]\nscript = {{ path = 'x.bt', interpreter = '/usr/bin/bpftrace' }}\n\
             [report]\nbpftrace-json = {{}}\ncounting = 'cumulative'\nunit = 'calls'\nfigures = [{figures}]\n"
        );
        let file = ToolFile::parse("t.toml", &text).unwrap();
        check(&file.report.unwrap(), script).err().map(|error| error.to_string())
    }

    #[test]
    fn a_map_that_a_script_does_not_have_is_named_with_the_nearest() {
        let script = "// @raeds\nkprobe:f { @reads = count(); @times = hist(1); printf(\"@writes\"); }";
        assert_eq!(refusal("{ value = '@reads', operations = 'read' }", script), None);
        assert_eq!(refusal("{ value = '@times.count', operations = 'read' }", script), None);
        let expected = "the script has no map `@raeds`; did you mean `@reads`?; its maps are @reads, @times";
        assert_eq!(refusal("{ value = '@raeds', operations = 'read' }", script).unwrap(), expected);
        assert!(refusal("{ value = '@writes', operations = 'write' }", script).unwrap().contains("no map `@writes`"));
        assert!(
            refusal("{ value = 'reads', operations = 'read' }", script).unwrap().contains("did you mean `@reads`?")
        );
        let imports = format!("import \"more.bt\";\n{script}");
        assert_eq!(refusal("{ value = '@raeds', operations = 'read' }", &imports), None);
    }

    #[test]
    fn a_key_that_a_script_does_not_have_is_named_where_all_of_its_keys_are_known() {
        let of = |label: &str, value: &str, script: &str| {
            refusal(&format!("{{ value = '@n', operations = 'read', where = {{ {label} = '{value}' }} }}"), script)
        };
        let script = "kprobe:f { @n[pid, \"read\"] = count(); @n[pid, \"write\"]++; } interval:s:1 { print(@n); }";
        assert_eq!(of("key2", "read", script), None);
        let expected = "the map `@n` has no key with `key2` = `raed`; did you mean `read`?; it has read, write";
        assert_eq!(of("key2", "raed", script).unwrap(), expected);
        // The value is known only at run time.
        assert_eq!(of("key1", "x", script), None);
        assert_eq!(of("key", "x", script), None);
        assert_eq!(of("key2", "raed", &script.replace("\"write\"", "comm")), None);
        assert_eq!(
            of("key", "1", "kprobe:f { @n[0] = count(); }").unwrap(),
            "the map `@n` has no key with `key` = `1`; it has 0"
        );
        assert_eq!(of("key3", "1", script), None);
        assert_eq!(of("key2", "x", "kprobe:f { @n[\"a"), None);
    }
}

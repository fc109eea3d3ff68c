// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bpftrace script: what it adds up in maps, by its text. The text is looked at, not parsed: what is not recognized is no proposal.

use bpfassay_protocol::Operation;

use super::{
    draft::{Draft, Figure, is_name, listed, quoted},
    guess,
};
use crate::{Unit, Whose};

/// Most maps and most keys of a map that are looked at.
const MOST: usize = 64;
/// Most bytes of a key.
const MOST_OF_KEY: usize = 4096;

/// Whether `text` in a file called `name` is one.
pub(super) fn is_script(name: &str, text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    name.ends_with(".bt") || (first.starts_with("#!") && first.contains("bpftrace"))
}

/// Probes and what they do.
struct Clause<'a> {
    probes: Vec<&'a str>,
    body: &'a str,
}

/// Labels and the values that they must have.
type Labels = Vec<(String, String)>;

/// Something is put into a map.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    map: String,
    keys: Vec<String>,
    what: What,
}

/// What is put into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// One more.
    Count,
    /// An amount more.
    Sum,
    /// A value of a histogram.
    Histogram,
    /// A value of statistics, which have a count and a total.
    Statistics,
    /// Anything else, which is no figure.
    Other,
}

/// A tool file for the script `named`.
pub(super) fn draft(name: &str, named: &str, text: &str) -> Draft {
    let code = without_comments(text);
    let clauses = clauses(&code);
    let mut figures: Vec<Figure> = Vec::new();
    let mut others: Vec<String> = Vec::new();
    for clause in &clauses {
        for change in changes(clause.body) {
            if change.what == What::Other {
                others.push(change.map);
                continue;
            }
            for figure in figures_of(clause, &change) {
                add(&mut figures, figure);
            }
        }
    }
    let clears = ["clear(", "zero(", "delete("].iter().any(|call| code.contains(call));
    let prints = clauses.iter().any(|clause| {
        clause.probes.iter().any(|probe| probe.starts_with("interval:")) && clause.body.contains("print(")
    });
    let mut report = vec!["#bpftrace-json = {}".to_owned()];
    if !prints {
        report.push("# It prints its maps at its end only. Decide: add `interval:s:1 { print(@…); }` for each map that is reported.".to_owned());
    }
    if !others.is_empty() {
        others.sort();
        others.dedup();
        report.push(format!("# Not added up, so no figures: {}", listed(others.iter().map(String::as_str))));
    }
    report.push(match clears {
        true => "# It empties maps. Decide: \"cumulative\" if not those that are reported.\n#counting = \"interval\""
            .to_owned(),
        false => "#counting = \"cumulative\"".to_owned(),
    });
    Draft {
        name: name.to_owned(),
        seen: format!("the bpftrace script {named}"),
        source: vec![format!(
            "script = {{ path = {}, interpreter = \"/usr/bin/bpftrace\", debian = {{ suite = \"trixie\", package = \"bpftrace\" }} }}",
            quoted(named)
        )],
        start: vec![
            "arguments = [\"-f\", \"json\", \"{script}\"]".to_owned(),
            "ready = { line = '\"attached_probes\"' }".to_owned(),
        ],
        report,
        figures,
    }
}

/// Adds `figure`; where one is the same but for its operations, to that.
fn add(figures: &mut Vec<Figure>, figure: Figure) {
    let is_same = |known: &&mut Figure| Figure { operations: figure.operations.clone(), ..(**known).clone() } == figure;
    match figures.iter_mut().find(is_same) {
        Some(known) => {
            let new: Vec<Operation> =
                figure.operations.iter().filter(|of| !known.operations.contains(of)).copied().collect();
            known.operations.extend(new);
        }
        None => figures.push(figure),
    }
}

/// What a map is a figure of.
fn figures_of(clause: &Clause<'_>, change: &Change) -> Vec<Figure> {
    let is_exit = |probe: &&str| {
        ["kretprobe", "kretfunc", "fexit", "uretprobe"].iter().any(|kind| probe.starts_with(kind))
            || probe.contains(":sys_exit_")
    };
    let amount = if clause.probes.iter().all(is_exit) { Unit::BytesReturned } else { Unit::BytesRequested };
    let parts: &[(&str, Unit)] = match change.what {
        What::Count => &[("", Unit::Calls)],
        What::Sum => &[("", amount)],
        What::Histogram => &[(".count", Unit::Calls)],
        What::Statistics => &[(".count", Unit::Calls), (".total", amount)],
        What::Other => &[],
    };
    let key = |index: usize| format!("key{}", index + 1);
    let (mut whose, mut label) = (Whose::System, None);
    let mut labelled = Labels::new();
    let mut by_probe = None;
    for (index, of) in change.keys.iter().enumerate() {
        let literal = of.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        match (literal, of.as_str()) {
            (Some(text), _) => labelled.push((key(index), text.to_owned())),
            (None, "probe" | "func") => by_probe = Some((key(index), of == "func")),
            (None, of) if label.is_none() => {
                if let (found @ (Whose::Cgroup | Whose::Process), _) = guess::subject([of]) {
                    (whose, label) = (found, Some(key(index)));
                }
            }
            _ => {}
        }
    }
    let named = |text: &str| guess::operation(&guess::words(text));
    let function = |probe: &str| probe.rsplit(':').next().unwrap_or(probe).to_owned();
    // Each probe by itself, or all of them together.
    let cases: Vec<(Labels, Vec<Operation>)> = match by_probe {
        Some((key, is_function)) => clause
            .probes
            .iter()
            .map(|probe| {
                let value = if is_function { function(probe) } else { (*probe).to_owned() };
                let labels = labelled.iter().cloned().chain([(key.clone(), value)]).collect();
                (labels, named(&function(probe)).into_iter().collect())
            })
            .collect(),
        None => {
            let of_key = labelled.iter().find_map(|(_, text)| named(text));
            let mut of_probes: Vec<Operation> =
                clause.probes.iter().filter_map(|probe| named(&function(probe))).collect();
            of_probes.sort();
            of_probes.dedup();
            vec![(labelled, of_key.map_or(of_probes, |operation| vec![operation]))]
        }
    };
    let figure = |(labelled, operations): &(Labels, Vec<Operation>), (part, unit): &(&str, Unit)| Figure {
        value: format!("{}{part}", change.map),
        labelled: labelled.clone(),
        operations: operations.clone(),
        unit: Some(*unit),
        scale: 1,
        whose,
        label: label.clone(),
    };
    cases
        .iter()
        .flat_map(|case| parts.iter().map(move |part| (case, part)))
        .map(|(case, part)| figure(case, part))
        .collect()
}

/// `text` with blanks in place of comments.
fn without_comments(text: &str) -> String {
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
            // `#!` and what the preprocessor takes.
            ('#', _) if begins_line && !in_text => while rest.next_if(|&c| c != '\n').is_some() {},
            (c, _) => code.push(c),
        }
        begins_line = c == '\n' || (begins_line && c.is_whitespace());
    }
    code
}

/// Where the bracket that `open` begins with is closed, in bytes; texts are passed over.
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

/// The clauses of a script.
fn clauses(code: &str) -> Vec<Clause<'_>> {
    let mut clauses = Vec::new();
    let mut rest = code;
    while let Some(open) = rest.find('{') {
        let Some(length) = closed(&rest[open..], ['{', '}']) else { break };
        let head = rest[..open].rsplit(';').next().unwrap_or_default();
        // A filter stands between `/` after a blank; paths of uprobes follow a colon.
        let filter =
            head.char_indices().zip(head.chars().skip(1)).find(|((_, c), next)| c.is_whitespace() && *next == '/');
        let probes = filter.map_or(head, |((at, _), _)| &head[..at]);
        let probes = probes.split(',').map(str::trim).filter(|probe| !probe.is_empty()).collect();
        clauses.push(Clause { probes, body: &rest[open..=open + length] });
        rest = &rest[open + length + 1..];
    }
    clauses
}

/// What is put into maps in the body of a clause.
fn changes(body: &str) -> Vec<Change> {
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
        if is_name(map) && changes.len() < MOST && keys.len() <= MOST {
            changes.push(Change { map: map.to_owned(), keys, what });
        }
    }
    changes
}

/// The parts of a key: what stands between commas, outside of brackets and texts.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results in which all strings are hostile: every free-text field has sequences that a terminal, a
//! page or a spreadsheet obeys.

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_report::derive;
use bpfassay_results::{
    BystanderCost, CodeCoverage, CoveredBranch, CoveredLine, CoveredLines, Direct, DirectFunction, Figure,
    JournalContents, JournalEntry, Outcome, ProgramCoverage, Results, Role,
};
use bpfassay_study::{Clock, LeftOut};
use bpfassay_tool::finding::{Certainty, FindingResult, FindingStatus, Kind};
use serde_json::{Value, json};

use super::{contents, made_up, matrix, not_supported, outcome, panic_of_guest, paths, study};

/// Sequences that terminals obey, that are invisible or change the order of text, and that are
/// markup or a formula somewhere.
pub(crate) const SEQUENCES: [&str; 34] = [
    "\u{1b}]0;title\u{7}",
    "\u{1b}[2J",
    "\u{1b}]8;;http://evil.example/\u{1b}\\link\u{1b}]8;;\u{1b}\\",
    "\u{1b}]52;c;ZXZpbA==\u{7}",
    "\u{1b}[c",
    "\u{1b}[31m",
    "\u{1b}P$qm\u{1b}\\",
    "\u{9b}31m",
    "\u{9d}0;title\u{9c}",
    "\r\u{1b}[K",
    "\u{8}\u{8}\u{8}",
    "\u{7f}",
    "\0",
    "\t",
    "\u{b}\u{c}\u{e}\u{f}",
    "\u{85}",
    "\u{202e}gnp.exe",
    "\u{2066}a\u{2069}",
    "\u{200e}\u{200f}\u{61c}",
    "\u{200b}\u{feff}",
    "\u{2028}\u{2029}",
    "\u{fffe}\u{ffff}",
    "a\nFORGED line\r\nFORGED line",
    "=1+1",
    "+1",
    "-1",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "| x | `y` **z** [e](f) ~~g~~ # h $i$",
    "</pre><script>alert(1)</script>",
    "]]> --> \" ' onmouseover='x' &lt;",
    "\\",
    "@somebody",
];

/// Whether `c` must not reach a terminal, a page or a table. A line feed is allowed.
pub(crate) fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{9}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Creates results of every kind, with a value in each field.
pub(crate) fn subjects() -> Vec<(&'static str, Results)> {
    let mut journal = contents(&study(None, 1, 2), |block, run| match (block.replicate, outcome(block, run)) {
        // A refusal that is not expected.
        (_, Outcome::Refused(_)) => {
            let verifier = Some("R1 invalid mem access".to_owned());
            Outcome::Refused(bpfassay_protocol::tracer_messages::Refusal {
                errno: Some(7),
                verifier,
                ..not_supported()
            })
        }
        (_, outcome) => outcome,
    });
    add_failures(&mut journal);
    let mut made_up_results = derive(&journal);
    made_up_results.notes.push("a note".to_owned());
    made_up_results.plan.left_out.push(LeftOut { what: "something".to_owned(), reason: "a reason".to_owned() });
    add_tool(&mut made_up_results);
    add_direct_cost(&mut made_up_results);
    add_code_coverage(&mut made_up_results);
    let features = derive(&contents(&matrix::study(""), matrix::outcome));
    vec![
        ("made-up", made_up_results),
        ("sampled", made_up::sampled()),
        ("series", made_up::series(Clock::Instructions)),
        ("paths", paths::results()),
        ("features", features),
    ]
}

fn add_direct_cost(results: &mut Results) {
    let cell = results.cells.iter_mut().rev().find(|cell| !cell.metrics.is_empty()).unwrap();
    let one = |per_call| bpfassay_stats::summarise(&[per_call]).unwrap();
    let direct = Direct {
        per_call: one(100.0),
        elsewhere: one(0.0),
        tool: Some(Figure::Value(one(1.5))),
        unresolved: 0.0,
        calls: 32,
        priced: None,
        functions: vec![DirectFunction {
            function: "on_call".to_owned(),
            role: Role::Program,
            per_call: 100.0,
            misses: None,
        }],
    };
    let metric = cell.metrics.first_mut().unwrap();
    metric.direct = Some(Figure::Value(direct.clone()));
    let (name, cost) = ("bystander-read".parse().unwrap(), metric.cost.clone());
    cell.bystander = vec![BystanderCost { name, direct: Figure::Value(direct), cost }];
}

fn add_code_coverage(results: &mut Results) {
    let line = CoveredLine {
        file: 0,
        line: 3,
        text: "\treturn 0;".to_owned(),
        executions: 5,
        branches: vec![CoveredBranch { column: 2, outcomes: Some([5, 0]) }],
    };
    let lines = CoveredLines { files: vec!["/src/a.bpf.c".to_owned()], lines: vec![line] };
    let program = |name: &str, lines| ProgramCoverage { program: name.to_owned(), lines };
    let programs = vec![program("on_call", Figure::Value(lines)), program("bare", Figure::missing("no lines"))];
    let mut cells = results.cells.iter_mut().rev();
    cells.next().unwrap().code_coverage = Some(Figure::Value(CodeCoverage { runs: 1, programs }));
    cells.next().unwrap().code_coverage = Some(Figure::missing("nothing was counted"));
}

fn add_failures(journal: &mut JournalContents) {
    for entry in &mut journal.entries {
        if let JournalEntry::BlockEnded(ended) = entry {
            ended.failure = Some(panic_of_guest());
            ended.notes.push("a line of the console".to_owned());
        }
    }
}

/// Adds a tool under test, findings of the tracer, and run times of its programs.
fn add_tool(results: &mut Results) {
    let compared = json!({
        "figure": "bytes read", "unit": "bytes-returned", "operations": ["read"], "whose": "process", "subject": "a process",
        "reported": 1, "really": 2, "rounding": 0, "moved": 3, "reported_as": "another name",
        "values": { "half_up_to": "1", "most_up_to": "2", "all_up_to": "3" },
    });
    let finding = |kind, status| FindingResult { kind, status };
    let found = FindingStatus::found(Certainty::Bounded, vec!["what was seen".to_owned()]);
    let open = FindingStatus::NotEvaluated { reason: "nobody looked".to_owned() };
    let findings =
        [finding(Kind::ALL[0], found), finding(Kind::ALL[1], open), finding(Kind::ALL[2], FindingStatus::Clear)];
    let run_time = json!({ "program": "on_read", "runs": 5, "run_time_ns": 10, "per_run_ns": {"value": 2.0} });
    for (index, cell) in results.cells.iter_mut().enumerate().filter(|(_, cell)| !cell.is_baseline()) {
        cell.tool = Some(format!("tool-{index}"));
        let mut result = json!({ "findings": findings, "figures": [compared] });
        cell.tool_result = serde_json::from_value(result.clone()).ok().or_else(|| {
            // Keep the findings if the form of figures has changed.
            result["figures"] = json!([]);
            serde_json::from_value(result).ok()
        });
        cell.run_times.extend(serde_json::from_value::<bpfassay_results::RunTime>(run_time.clone()));
    }
}

/// Returns the paths of all free-text strings in results, without indexes of elements.
pub(crate) fn places(results: &Results) -> BTreeSet<String> {
    let value = serde_json::to_value(results).unwrap();
    let mut all = BTreeSet::new();
    each(&mut value.clone(), &mut String::new(), &mut |place, _| {
        all.insert(place.to_owned());
    });
    all.retain(|wanted| {
        let mut tried = value.clone();
        each(&mut tried, &mut String::new(), &mut |place, text| {
            if place == wanted {
                text.push('\u{1b}');
            }
        });
        serde_json::from_value::<Results>(tried).is_ok()
    });
    all
}

fn each(value: &mut Value, place: &mut String, visit: &mut impl FnMut(&str, &mut String)) {
    let length = place.len();
    match value {
        Value::String(text) => visit(place, text),
        Value::Array(values) => {
            place.push_str("/*");
            values.iter_mut().for_each(|value| each(value, place, visit));
        }
        Value::Object(values) => {
            for (key, value) in values {
                place.push('/');
                place.push_str(key);
                each(value, place, visit);
                place.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    place.truncate(length);
}

/// Applies `change` to every string of `results` in `places`; equal strings stay equal.
pub(crate) fn with(results: &Results, places: &BTreeSet<String>, change: impl Fn(&str) -> String) -> Results {
    let mut value = serde_json::to_value(results).unwrap();
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    each(&mut value, &mut String::new(), &mut |place, text| {
        if places.contains(place) {
            *text = known.entry(text.clone()).or_insert_with(|| change(text)).clone();
        }
    });
    serde_json::from_value(value).unwrap()
}

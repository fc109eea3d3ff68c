// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks formats by independent rules: JUnit by its schema, OpenMetrics by the parser of
//! Prometheus' client library, Markdown by a Markdown parser.
//!
//! The first two need programs of the host: xmllint (Debian: libxml2-utils) and
//! python3-prometheus-client. If one is missing, the test prints a message, and fails if
//! `BPFASSAY_TEST_PROGRAMS=required` is set, as `ci/test` does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints what it skips"
)]

use std::{
    collections::BTreeMap,
    env,
    io::Write as _,
    process::{Command, Stdio},
};

use bpfassay_protocol::probe::Probe;
use bpfassay_report::{
    compare::{Question, compare},
    derive,
    render::{comparison_junit, comparison_markdown, github, junit, markdown, openmetrics},
};
use bpfassay_results::{JournalContents, Outcome, Results, plain};
use bpfassay_study::Clock;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::common::{contents, hostile, made_up, not_supported, outcome, paths, quick, study};

fn all() -> Vec<(&'static str, Results)> {
    vec![
        ("made-up", derive(&contents(&study(None, 3, 1), outcome))),
        ("hostile", hostile()),
        ("hostile in every field", hostile_everywhere()),
        ("unfinished", derive(&JournalContents { entries: Vec::new(), ..contents(&study(None, 3, 1), outcome) })),
        ("kernels", made_up::series(Clock::Instructions)),
        ("paths", paths::results()),
        ("quick", quick::results()),
    ]
}

/// Creates results whose messages look like markup of every kind.
fn hostile() -> Results {
    let mut results = derive(&contents(&study(None, 3, 1), |block, run| match run.spec.probe.probe {
        Probe::Fexit => {
            let mut refusal = not_supported();
            refusal.message = HOSTILE.to_owned();
            Outcome::Refused(refusal)
        }
        _ => outcome(block, run),
    }));
    results.notes.push(HOSTILE.to_owned());
    results
}

/// Creates results in which every text is hostile.
fn hostile_everywhere() -> Results {
    let (_, results) = hostile::subjects().remove(0);
    let places = hostile::places(&results);
    hostile::with(&results, &places, |text| format!("{text}{}", hostile::SEQUENCES.concat()))
}

const HOSTILE: &str = "a | b `c` <script>*d*</script> [e](f) ]]> \u{1b}[31m \"g\" 'h' & \\ ~~i~~ # j\n- k";

/// Passes `text` to a program of the host, which checks it; `None`, with a message, if it is not
/// installed.
fn checked_by(program: &mut Command, probe: &[&str], text: &str) -> Option<(bool, String)> {
    let name = program.get_program().to_owned();
    let installed = Command::new(&name).args(probe).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !installed.is_ok_and(|status| status.success()) {
        let required = env::var_os("BPFASSAY_TEST_PROGRAMS").is_some_and(|value| value == "required");
        assert!(!required, "{name:?} {probe:?} does not work: install libxml2-utils and python3-prometheus-client");
        println!("SKIPPED: {name:?} {probe:?} does not work: install libxml2-utils and python3-prometheus-client");
        return None;
    }
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(text.as_bytes()));
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Some((output.status.success(), said))
    })
}

fn by_schema(text: &str) -> Option<(bool, String)> {
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/junit.xsd");
    checked_by(Command::new("xmllint").args(["--noout", "--schema", schema, "-"]), &["--version"], text)
}

#[test]
fn junit_keeps_to_its_schema() {
    let all = all();
    let mut texts: Vec<_> = all.iter().map(|(name, results)| ((*name).to_owned(), junit(results).unwrap())).collect();
    for (name, results) in &all {
        let comparison = compare(&all[0].1, results, &Question::default());
        texts.extend(comparison.ok().map(|found| (format!("made-up and {name}"), comparison_junit(&found).unwrap())));
    }
    assert!(texts.len() > all.len() + 1, "nothing was compared");
    for (name, text) in texts {
        let Some((valid, said)) = by_schema(&text) else { return };
        assert!(valid, "{name}: {said}\n{text}");
        // The numbers of each suite must match its cases.
        for suite in text.split("<testsuite ").skip(1) {
            for (attribute, element) in
                [("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")]
            {
                let shown = suite.split_once(&format!("{attribute}=\"")).unwrap().1.split('"').next().unwrap();
                let counted = suite.matches(&format!("<{element} ")).count();
                assert_eq!(shown, counted.to_string(), "{name}: {attribute}");
            }
        }
    }
    // Check that the schema refuses wrong files.
    let right = junit(&all[0].1).unwrap();
    for (from, to) in [("<testsuites ", "<testsuites skipped=\"1\" "), (" classname=", " class="), ("tests=", "test=")]
    {
        let Some((valid, _)) = by_schema(&right.replacen(from, to, 1)) else { return };
        assert!(!valid, "{from} → {to} is not refused");
    }
}

/// Parses the text on standard input with the reference parser of OpenMetrics: each sample's name,
/// labels, value.
const PARSER: &str = r#"
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
samples = [(s.name, s.labels, s.value) for family in parse(sys.stdin.read()) for s in family.samples]
print(json.dumps(samples))
"#;

/// Debian's interpreter, which finds Debian's packages.
const PYTHON: &str = "/usr/bin/python3";

fn by_prometheus(text: &str) -> Option<(bool, String)> {
    let installed = ["-c", "import prometheus_client.openmetrics.parser"];
    checked_by(Command::new(PYTHON).args(["-c", PARSER]), &installed, text)
}

#[test]
fn openmetrics_are_what_prometheus_reads() {
    for (name, results) in all() {
        let text = openmetrics(&results);
        let Some((valid, said)) = by_prometheus(&text) else { return };
        assert!(valid, "{name}: {said}\n{text}");
        let samples: Vec<(String, BTreeMap<String, String>, f64)> = serde_json::from_str(&said).unwrap();
        for cell in &results.cells {
            for row in &cell.metrics {
                let is_it = |(metric, labels, _): &&(String, BTreeMap<String, String>, f64)| {
                    metric == "bpfassay_overhead_ratio"
                        && labels["arch"] == cell.target.arch.to_string()
                        && labels["kernel"] == plain::text(&cell.target.kernel)
                        && labels["under_test"] == plain::text(&cell.under_test())
                        && labels["workload"] == plain::text(&cell.case)
                        && labels["file_system"] == plain::text(&cell.file_system)
                        && labels["metric"] == *row.name
                };
                let found = samples.iter().find(is_it).map(|(_, _, value)| *value);
                let known = row.overhead.value().map(|overhead| overhead.estimate.value);
                assert_eq!(found, known, "{name}: {}, {}", cell.cell, row.name);
            }
        }
    }
    // Check that the parser refuses wrong texts.
    let right = openmetrics(&derive(&contents(&study(None, 3, 1), outcome)));
    for wrong in [right.replace("# EOF\n", ""), right.replacen("gauge", "guage", 1), right.replacen("\"} ", "\" ", 1)] {
        let Some((valid, _)) = by_prometheus(&wrong) else { return };
        assert!(!valid, "is not refused:\n{wrong}");
    }
}

/// Returns the tables of a Markdown text, row by row, and other elements that are not plain text.
fn parsed(text: &str) -> (Vec<Vec<Vec<String>>>, Vec<String>) {
    let (mut tables, mut others) = (Vec::new(), Vec::new());
    for event in Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
        match event {
            Event::Start(Tag::Table(_)) => tables.push(Vec::new()),
            Event::Start(Tag::TableHead | Tag::TableRow) => tables.last_mut().unwrap().push(Vec::new()),
            Event::Start(Tag::TableCell) => tables.last_mut().unwrap().last_mut().unwrap().push(String::new()),
            Event::Text(text) => {
                if let Some(cell) = tables.last_mut().and_then(|table| table.last_mut()).and_then(|row| row.last_mut())
                {
                    cell.push_str(&text);
                }
            }
            Event::Start(Tag::Paragraph | Tag::List(_) | Tag::Item | Tag::Strong) | Event::SoftBreak => {}
            Event::End(TagEnd::Table) => tables.push(Vec::new()),
            Event::End(_) => {}
            other => others.push(format!("{other:?}")),
        }
    }
    tables.retain(|table: &Vec<Vec<String>>| !table.is_empty() && table.iter().any(|row| row.len() > 1));
    (tables, others)
}

#[test]
fn markdown_is_tables_and_plain_text() {
    for (name, results) in all() {
        let text = markdown(&results);
        let (tables, others) = parsed(&text);
        assert!(others.is_empty(), "{name}: {others:?}\n{text}");
        assert!(!tables.is_empty(), "{name}: no table\n{text}");
        for table in &tables {
            assert!(table.iter().all(|row| row.len() == table[0].len()), "{name}: {table:?}");
        }
        let shown: usize = tables.iter().map(Vec::len).sum();
        assert_eq!(shown, text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| --- ")).count());
    }
    let comparison = compare(&all()[0].1, &hostile(), &Question::default()).unwrap();
    let (tables, others) = parsed(&comparison_markdown(&comparison, true));
    assert!(others.is_empty() && tables.len() == 1, "{others:?}");
}

#[test]
fn what_looks_like_markup_is_shown_as_it_is() {
    let (tables, _) = parsed(&markdown(&hostile()));
    assert!(!tables.is_empty());
    let (tables, others) = parsed(&github(&hostile()).summary);
    assert!(!tables.is_empty() && others.len() == 1 && others[0].starts_with("Start(Heading"), "{others:?}");
    let text = markdown(&hostile());
    let mut all = String::new();
    for event in Parser::new_ext(&text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
        if let Event::Text(text) = event {
            all.push_str(&text);
        }
    }
    // A control character is shown as a number, and a line feed as a space; everything else is
    // unchanged text.
    let shown = HOSTILE.replace('\u{1b}', "\\x1b").replace('\n', " ");
    assert!(all.contains(&shown), "{shown:?} is not in {all}");
}

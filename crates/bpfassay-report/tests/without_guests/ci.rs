// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats for CI systems, forges and dashboards: annotations and summaries within their limits,
//! KTAP by its grammar, badges that do not exaggerate, metrics with their intervals.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use std::{collections::BTreeSet, sync::OnceLock};

use bpfassay_report::{
    derive,
    render::{Github, badge, bencher, github, ktap},
};
use bpfassay_results::{Attach, CellResult, Figure, JournalContents, JournalEntry, Outcome, Results};
use bpfassay_stats::Verdict;
use bpfassay_study::{Clock, Gate};
use bpfassay_tool::finding::{Certainty, FindingResult, FindingStatus, Kind};
use proptest::prelude::*;
use serde_json::Value;

use crate::common::{contents, hostile, made_up, matrix, not_supported, outcome, paths, quick, study};

fn results() -> Results {
    derive(&contents(&study(None, 3, 1), outcome))
}

/// Creates results in which every run has figures.
fn sound() -> Results {
    let mut results = derive(&contents(&study(None, 3, 1), |block, run| match outcome(block, run) {
        Outcome::Measured(figures) => Outcome::Measured(figures),
        _ => Outcome::Measured(Box::new(crate::common::figures(run.spec.probe, 100.0, 100.0))),
    }));
    for cell in results.cells.iter_mut().filter(|cell| !cell.is_baseline()) {
        // A refusal is expected on one of the targets.
        cell.attach = Attach::Attached { functions: Vec::new(), in_spite_of: None };
    }
    results
}

fn unfinished() -> Results {
    derive(&JournalContents { entries: Vec::new(), ..contents(&study(None, 3, 1), outcome) })
}

fn message(results: &Results) -> (String, String) {
    let badge: Value = serde_json::from_str(&badge(results).unwrap()).unwrap();
    assert_eq!(badge["schemaVersion"], 1);
    assert_eq!(badge["label"], format!("bpfassay {}", results.plan.study.name));
    assert_eq!(badge.as_object().unwrap().len(), 4);
    (badge["message"].as_str().unwrap().to_owned(), badge["color"].as_str().unwrap().to_owned())
}

fn is(message: &str, color: &str) -> (String, String) {
    (message.to_owned(), color.to_owned())
}

#[test]
fn a_badge_says_what_is_true() {
    assert_eq!(message(&sound()), is("exact, 6 of 6", "brightgreen"));
    assert_eq!(message(&results()), is("exact, 4 of 6; refused as expected, 1 of 6; failed, 1 of 6", "red"));
    assert_eq!(message(&unfinished()), is("not measured, 6 of 6; not measured, 3 of 3 baselines", "yellow"));
}

#[test]
fn a_badge_of_interrupted_results_is_not_green() {
    let whole = contents(&study(None, 3, 1), outcome);
    // Keep as many runs as one cell has, and then half of the first boot.
    for kept in [2, 5] {
        let mut entries = whole.entries.clone();
        let mut runs = 0;
        entries.retain(|entry| {
            runs += usize::from(matches!(entry, JournalEntry::Run(_)));
            runs <= kept && !matches!(entry, JournalEntry::BlockEnded(_))
        });
        let (message, color) = message(&derive(&JournalContents { entries, ..whole.clone() }));
        assert_eq!(color, "yellow", "{message}");
        assert!(message.contains("measured, ") && !message.contains("exact, 6 of 6"), "{message}");
    }
    // Every run exists, but one interval of one cell was not compared.
    let mut results = sound();
    let accuracy = results.cells.iter_mut().rev().find_map(|cell| cell.accuracy.first_mut()).unwrap();
    accuracy.byte_error.value_mut().unwrap().not_measured = 1;
    assert_eq!(message(&results), is("exact, 5 of 6; partly measured, 1 of 6", "yellow"));
    // A probe whose bytes belong to no mount is not exact because of that.
    let accuracy = results.cells.iter_mut().rev().find_map(|cell| cell.accuracy.first_mut()).unwrap();
    let whole = std::mem::replace(&mut accuracy.byte_error, Figure::missing("it counts no bytes"));
    assert_eq!(message(&results), is("exact, 5 of 6; measured, 1 of 6", "brightgreen"));
    let accuracy = results.cells.iter_mut().rev().find_map(|cell| cell.accuracy.first_mut()).unwrap();
    accuracy.byte_error = whole;
    accuracy.byte_error.value_mut().unwrap().max = 4096;
    assert_eq!(message(&results), is("exact, 5 of 6; not exact, 1 of 6", "yellow"));
    results.cells.last_mut().unwrap().runs.measured -= 1;
    assert_eq!(message(&results), is("exact, 5 of 6; partly measured, 1 of 6", "yellow"));
}

#[test]
fn a_badge_tells_gates_and_surprises_first() {
    let mut gated = study(None, 3, 1);
    gated.gates = vec![Gate { byte_error: Some(0), attach: true, ..Gate::default() }];
    let results = derive(&contents(&gated, outcome));
    let count = |verdict: Verdict| results.gates.iter().filter(|gate| gate.verdict == verdict).count();
    let (said, color) = message(&results);
    let gates = format!("gates: {} inconclusive, {} pass; exact", count(Verdict::Inconclusive), count(Verdict::Pass));
    assert!(said.starts_with(&gates) && color == "red", "{said}");
    let (said, color) = message(&derive(&contents(&matrix::study(""), matrix::outcome)));
    assert!(said.starts_with("no surprise; ") || said.contains("surprise"), "{said}");
    assert!(color != "brightgreen" || !said.contains("refused,"), "{said}");
}

/// Creates results with a tool instead of kprobe, with `findings`.
fn with_tool(findings: &[FindingResult]) -> Results {
    let mut results = sound();
    for cell in results.cells.iter_mut().filter(|cell| cell.cell.ends_with("kprobe")) {
        cell.tool = Some("mine".to_owned());
        cell.tool_result = serde_json::from_value(serde_json::json!({ "findings": findings, "figures": [] })).ok();
        assert!(cell.tool_result.is_some());
    }
    results
}

#[test]
fn findings_are_told_by_badge_and_annotations() {
    let found = FindingStatus::found(Certainty::Proven, vec!["10 bytes, 5 %".to_owned(), "more".to_owned()]);
    let finding = |status| vec![FindingResult { kind: Kind::LeftBehind, status }];
    assert_eq!(message(&with_tool(&finding(FindingStatus::Clear))).0, "exact, 3 of 6; nothing found, 3 of 6");
    let open = FindingStatus::NotEvaluated { reason: "x".to_owned() };
    assert_eq!(message(&with_tool(&finding(open))).0, "exact, 3 of 6; measured, 3 of 6");
    let results = with_tool(&finding(found));
    assert_eq!(message(&results), is("exact, 3 of 6; with findings, 3 of 6", "yellow"));
    let Github { annotations, .. } = github(&results);
    let line = "::warning title=found%3A left-behind on x86_64 6.1%2C mine::left-behind (proven): 10 bytes, 5 %25%0Aleft-behind (proven): more\n";
    assert!(annotations.contains(line), "{annotations}");
    assert_eq!(annotations.matches("::warning ").count(), 3);
    assert!(!annotations.contains("::error "));
}

#[test]
fn annotations_and_summary_are_those_of_the_results() {
    let mut gated = study(None, 3, 1);
    gated.gates = vec![Gate { byte_error: Some(0), attach: true, ..Gate::default() }];
    let Github { annotations, summary } = github(&derive(&contents(&gated, outcome)));
    insta::assert_snapshot!(format!("{annotations}\n----\n{summary}"));
}

#[test]
fn a_guest_that_takes_many_runs_with_it_is_one_annotation() {
    let mut results = results();
    let failure = results.cells.iter().find_map(|cell| cell.failures.first().cloned()).unwrap();
    for (index, cell) in results.cells.iter_mut().enumerate() {
        let mut failure = failure.clone();
        failure.run = format!("run-{index}");
        failure.failure.phase = Some(bpfassay_protocol::message::Phase::Boot);
        cell.failures = vec![failure];
    }
    let Github { annotations, .. } = github(&results);
    // There is one annotation for each target.
    assert_eq!(annotations.matches("::error ").count(), 3, "{annotations}");
    assert!(annotations.contains("::run-0 and 2 more runs: kernel panic during boot: "), "{annotations}");
}

/// Creates results with each cell repeated `times` times.
fn many(times: usize) -> Results {
    let mut results = derive(&contents(&study(None, 3, 1), |block, run| match outcome(block, run) {
        Outcome::Refused(_) => {
            Outcome::Refused(bpfassay_protocol::tracer_messages::Refusal { errno: Some(7), ..not_supported() })
        }
        outcome => outcome,
    }));
    let cells: Vec<CellResult> = results.cells.clone();
    for index in 1..times {
        results.cells.extend(cells.iter().cloned().map(|mut cell| {
            cell.cell = format!("{}_{index}", cell.cell);
            cell.target.kernel = format!("6.{index}");
            cell
        }));
    }
    results
}

#[test]
fn annotations_and_summary_keep_to_the_bounds_of_github_and_say_what_was_cut() {
    let Github { annotations, summary } = github(&many(500));
    assert_eq!(annotations.matches("::error ").count(), 10);
    let more = annotations.lines().rfind(|line| line.starts_with("::error ")).unwrap();
    assert!(more.starts_with("::error title=1991 more of this level::"), "{more}");
    assert!(summary.len() <= 65_536, "{} bytes", summary.len());
    for what in ["rows", "remarks"] {
        assert!(summary.contains(&format!(" {what} are left out here: the report has them**")), "{what}: {summary}");
    }
    assert!(summary.lines().filter(|line| line.starts_with("| ")).count() > 50, "{summary}");
    // A note that is too long is left out of the table entirely; the head has its beginning.
    let mut results = many(500);
    results.notes.push("n".repeat(100_000));
    let Github { summary, .. } = github(&results);
    assert!(summary.len() <= 65_536 && !summary.contains(&"n".repeat(201)), "{} bytes", summary.len());
    assert!(summary.contains(" notes are left out here: the report has them**"), "{summary}");
    // A table that fits is complete.
    let Github { summary, .. } = github(&self::results());
    assert!(!summary.to_lowercase().contains("left out"), "{summary}");
}

/// Reads KTAP by its grammar: the outcomes of subtests, then of suites.
fn read_ktap(text: &str) -> Result<(Vec<bool>, Vec<bool>), String> {
    let mut lines = text.lines().peekable();
    let plan = |line: Option<&str>, indent: &str| -> Result<usize, String> {
        let line = line.ok_or("no plan")?;
        let count = line.strip_prefix(indent).and_then(|line| line.strip_prefix("1.."));
        count.and_then(|count| count.parse().ok()).filter(|count| *count > 0).ok_or(format!("no plan: {line:?}"))
    };
    let result = |line: &str, number: usize| -> Result<bool, String> {
        let (passed, rest) = match line.strip_prefix("not ok ") {
            Some(rest) => (false, rest),
            None => (true, line.strip_prefix("ok ").ok_or(format!("no result: {line:?}"))?),
        };
        let rest = rest.strip_prefix(&format!("{number} ")).ok_or(format!("not number {number}: {line:?}"))?;
        match rest.split_once('#') {
            None => Ok(passed),
            Some((name, directive)) if name.ends_with(' ') && !name.trim().is_empty() => {
                let wanted = if passed { " SKIP " } else { " ERROR " };
                directive.starts_with(wanted).then_some(passed).ok_or(format!("directive: {line:?}"))
            }
            Some(_) => Err(format!("a name with #: {line:?}")),
        }
    };
    if lines.next() != Some("KTAP version 1") {
        return Err("no version".to_owned());
    }
    // Diagnostic lines have the conclusion and the facts about the measurement.
    while lines.next_if(|line| line.starts_with("# ")).is_some() {}
    let suites = plan(lines.next(), "")?;
    let (mut cases, mut outer) = (Vec::new(), Vec::new());
    for suite in 1..=suites {
        let before = cases.len();
        if lines.peek() == Some(&"  KTAP version 1") {
            lines.next();
            lines.next_if(|line| line.starts_with("  # Subtest: ")).ok_or("no name of a subtest")?;
            for number in 1..=plan(lines.next(), "  ")? {
                while lines.next_if(|line| line.starts_with("  # ")).is_some() {}
                let line = lines.next().and_then(|line| line.strip_prefix("  ")).ok_or("too few results")?;
                cases.push(result(line, number)?);
            }
        }
        let passed = result(lines.next().ok_or("too few suites")?, suite)?;
        if passed != cases[before..].iter().all(|passed| *passed) {
            return Err(format!("suite {suite} is not what its cases are"));
        }
        outer.push(passed);
    }
    lines.next().map_or(Ok((cases, outer)), |line| Err(format!("after the end: {line:?}")))
}

#[test]
fn ktap_keeps_to_its_grammar() {
    let features = derive(&contents(&matrix::study(""), matrix::outcome));
    let quick = quick::results();
    let cases = quick.cells.len() + quick.gates.len();
    assert_eq!(read_ktap(&ktap(&quick)).unwrap().0.len(), cases);
    for results in [results(), unfinished(), paths::results(), features, made_up::series(Clock::Instructions)] {
        let text = ktap(&results);
        read_ktap(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }
    let right = ktap(&results());
    for (from, to) in [("KTAP version 1\n", ""), ("1..9", "1..8"), ("  ok 1 ", "  ok 2 "), ("not ok 1 ", "ok 1 ")] {
        assert!(read_ktap(&right.replacen(from, to, 1)).is_err(), "{from} → {to} is not refused");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn no_name_or_message_ends_the_line_of_ktap_that_it_stands_in(any in any::<String>(), which in 0_usize..8) {
        static PLACES: OnceLock<(Results, BTreeSet<String>)> = OnceLock::new();
        let (results, places) = PLACES.get_or_init(|| (results(), hostile::places(&results())));
        let results = hostile::with(results, places, |text| format!("{any}# ok 1 {text}\n# {}", hostile::SEQUENCES[which]));
        let text = ktap(&results);
        let (cases, _) = read_ktap(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        prop_assert_eq!(cases.len(), results.cells.len());
    }
}

#[test]
fn bencher_has_every_figure_that_was_measured_and_no_other() {
    for results in [results(), unfinished(), quick::results(), made_up::series(Clock::Instructions)] {
        let json: Value = serde_json::from_str(&bencher(&results).unwrap()).unwrap();
        let mut count = 0;
        for cell in &results.cells {
            for metric in &cell.metrics {
                let of = &json[format!("{}/{}", cell.cell, metric.name)];
                let overhead = metric.overhead.value().map(|overhead| overhead.estimate);
                assert_eq!(of["overhead-ratio"]["value"].as_f64(), overhead.map(|overhead| overhead.value));
                let interval = overhead.and_then(|overhead| overhead.bounds.interval());
                assert_eq!(of["overhead-ratio"]["lower_value"].as_f64(), interval.map(|interval| interval.lower));
                assert_eq!(of["overhead-ratio"]["upper_value"].as_f64(), interval.map(|interval| interval.upper));
                let direct = metric.direct.as_ref().and_then(Figure::value).map(|direct| direct.per_call.mean);
                assert_eq!(of["direct-instructions-per-call"]["value"].as_f64(), direct);
                let bandwidth = metric.value.value().filter(|_| metric.operation.is_some());
                let bandwidth = bandwidth.map(bpfassay_stats::Summary::center);
                assert_eq!(of["bandwidth-mebibytes-per-second"]["value"].as_f64(), bandwidth);
                count += usize::from(!of.is_null());
                assert!(of.as_object().is_none_or(|measures| !measures.is_empty()));
            }
        }
        assert_eq!(json.as_object().unwrap().len(), count, "{json}");
    }
    let json = bencher(&unfinished()).unwrap();
    assert_eq!(json, "{}\n");
    insta::assert_snapshot!(bencher(&results()).unwrap().lines().take(24).collect::<Vec<_>>().join("\n"));
}

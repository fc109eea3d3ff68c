// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever foreign text results contain, no format passes sequences that a terminal obeys, that
//! change the order of text, or that a spreadsheet calculates.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use std::{collections::BTreeSet, sync::OnceLock};

use bpfassay_report::{
    compare::{Question, compare},
    render::{
        Github, Style, badge, bencher, code_coverage_html, collapsed, comparison_html, comparison_junit,
        comparison_markdown, comparison_text, csv, figure_svg, github, html, junit, ktap, lcov, markdown, openmetrics,
        pprof, text, trend_markdown, trend_text,
    },
    trend::trend,
};
use bpfassay_results::Results;
use proptest::prelude::*;

use crate::common::hostile::{SEQUENCES, is_forbidden, places, subjects, with};

/// Renders `results` in every format, by name.
fn forms(results: &Results) -> Vec<(&'static str, String)> {
    let page = html(results).unwrap();
    let Github { annotations, summary } = github(results);
    let mut forms = vec![
        ("annotations", annotations),
        ("summary, markdown", summary),
        ("ktap", ktap(results)),
        ("badge", badge(results).unwrap()),
        ("bencher", bencher(results).unwrap()),
        ("text", text(results, Style { width: None })),
        ("text in a terminal", text(results, Style { width: Some(120) })),
        ("markdown", markdown(results)),
        ("junit", junit(results).unwrap()),
        ("openmetrics", openmetrics(results)),
        ("collapsed", collapsed(results)),
        ("pprof", crate::common::pprof::read(&pprof(results).unwrap()).texts.join("\n")),
        ("csv", csv(results).unwrap()),
    ];
    forms.extend(lcov(results).ok().map(|text| ("lcov", text)));
    // An exact title names one figure.
    if let Err(several) = figure_svg(results, "\u{10ffff}")
        && let Some(title) = several.known.first()
    {
        forms.extend(figure_svg(results, title).map(|svg| ("svg", svg)));
    }
    forms.push(("html", page));
    forms.extend(code_coverage_html(results).unwrap().map(|page| ("code coverage, html", page)));
    if let Ok(comparison) = compare(results, results, &Question::default()) {
        forms.push(("compared, text", comparison_text(&comparison, Style { width: None }, true)));
        forms.push(("compared, markdown", comparison_markdown(&comparison, true)));
        forms.push(("compared, html", comparison_html(&comparison, true).unwrap()));
        forms.push(("compared, junit", comparison_junit(&comparison).unwrap()));
    }
    if let Ok(trend) = trend(&[("a \u{1b}[2J name".to_owned(), results)]) {
        forms.push(("trend, text", trend_text(&trend, Style { width: None })));
        forms.push(("trend, markdown", trend_markdown(&trend)));
    }
    forms
}

fn check(what: &str, results: &Results) {
    for (form, shown) in forms(results) {
        if let Some((line, c)) = shown.lines().find_map(|line| Some((line, line.chars().find(|c| is_forbidden(*c))?))) {
            panic!("{what}, {form}: {c:?} in {line:?}");
        }
        if !form.contains("html") && !form.contains("junit") && form != "svg" {
            assert!(
                shown.lines().all(|line| !line.starts_with("FORGED")),
                "{what}, {form}: a line is forged:\n{shown}"
            );
        }
        if form.contains("html") || form.contains("markdown") || form == "svg" || form.contains("junit") {
            let tag = shown.match_indices("<script").find(|(at, _)| !shown[..*at].ends_with('\\'));
            assert!(tag.is_none(), "{what}, {form}: a guest's markup");
        }
        if form == "annotations" {
            for line in shown.lines() {
                let known = ["::error title=", "::warning title=", "::notice title="];
                let rest = known.iter().find_map(|command| line.strip_prefix(command));
                assert!(rest.is_some_and(|rest| rest.contains("::")), "{what}: {line:?} is no annotation");
            }
        } else if form != "html" && form != "svg" {
            // A runner looks for commands in every output of a step: at the beginning of a line, or
            // with `##[` anywhere in it.
            let is_command = |line: &str| line.trim_start().starts_with("::");
            assert!(!shown.lines().any(is_command), "{what}, {form}: a command to a runner");
            assert!(form != "summary, markdown" || !shown.contains("##["), "{what}: a command to a runner");
        }
        if form == "ktap" {
            let lines = ["KTAP version 1", "1..", "ok ", "not ok ", "# "];
            for line in shown.lines().map(str::trim_start) {
                assert!(lines.iter().any(|start| line.starts_with(start)), "{what}: {line:?} is no line of KTAP");
            }
        }
        if form == "csv" {
            no_formula(what, &shown);
        }
        if form == "lcov" {
            let records =
                ["TN:", "SF:", "BRDA:", "BRF:", "BRH:", "DA:", "LF:", "LH:", "end_of_record", "# not measured: "];
            for line in shown.lines() {
                assert!(records.iter().any(|record| line.starts_with(record)), "{what}: {line:?} is no record");
            }
        }
        if form == "openmetrics" {
            for line in shown.lines() {
                assert!(line.starts_with("bpfassay_") || line.starts_with("# "), "{what}: {line:?} is no sample");
            }
        }
    }
}

/// Columns of numbers, which stay numbers.
const NUMBERS: [&str; 6] = ["replicate", "round", "value", "relative_error", "elapsed_ns", "calls"];

fn no_formula(what: &str, text: &str) {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().unwrap().clone();
    for record in reader.records() {
        for (name, field) in head.iter().zip(&record.unwrap()) {
            if NUMBERS.contains(&name) {
                assert!(field.is_empty() || field.parse::<f64>().is_ok(), "{what}: {name} is {field:?}");
            } else {
                let first = field.trim_start().chars().next();
                assert!(!first.is_some_and(|c| "=+-@\t\r".contains(c)), "{what}: {name} is {field:?}");
            }
        }
    }
}

/// The results to test, by name.
type Subjects = Vec<(&'static str, Results)>;

/// Returns the results to test, and the paths of their free-text strings.
fn all() -> &'static (Subjects, BTreeSet<String>) {
    static ALL: OnceLock<(Subjects, BTreeSet<String>)> = OnceLock::new();
    ALL.get_or_init(|| {
        let subjects = subjects();
        // The others are larger, and have the same fields.
        let small = subjects.iter().filter(|(name, _)| ["made-up", "features"].contains(name));
        let places = small.flat_map(|(_, results)| places(results)).collect();
        (subjects, places)
    })
}

#[test]
fn what_others_wrote_can_stand_in_all_these_places() {
    let (subjects, places) = all();
    for place in [
        "/plan/study/name",
        "/plan/study/description",
        "/plan/left_out/*/reason",
        "/plan/blocks/*/target/kernel",
        "/cells/*/target/kernel",
        "/cells/*/case",
        "/cells/*/tool",
        "/cells/*/tool_result/findings/*/evidence/*",
        "/cells/*/code_coverage/value/programs/*/program",
        "/cells/*/code_coverage/value/programs/*/lines/value/files/*",
        "/cells/*/code_coverage/value/programs/*/lines/value/lines/*/text",
        "/cells/*/attach/refusal/message",
        "/cells/*/failures/*/failure/excerpt/*",
        "/runs/*/record/run",
        "/boots/*/facts/kernel_release",
        "/boots/*/failure/excerpt/*",
        "/boots/*/notes/*",
        "/provenance/*/host/cpu_model",
        "/notes/*",
    ] {
        assert!(places.contains(place), "{place} is not tried: {places:#?}");
    }
    assert!(subjects[0].1.cells.iter().any(|cell| cell.tool_result.is_some()));
}

#[test]
fn known_sequences_are_shown_and_not_obeyed() {
    let (subjects, places) = all();
    for (name, results) in subjects {
        for (index, sequence) in SEQUENCES.iter().enumerate() {
            // The larger ones take a second each; below, each of them gets all sequences at once.
            if *name == "made-up" || index % 16 == 0 {
                check(
                    &format!("{name}, {sequence:?}"),
                    &with(results, places, |text| format!("{sequence}{text}{sequence}")),
                );
            }
        }
        let everything = SEQUENCES.concat();
        check(name, &with(results, places, |text| format!("{everything}{text}")));
    }
}

#[test]
fn a_forbidden_character_is_shown_by_its_number() {
    let (subjects, places) = all();
    let results = with(&subjects[0].1, places, |text| format!("{text}\u{1b}[2J\u{9b}\u{202e}"));
    for (form, shown) in forms(&results) {
        for number in ["x1b", "u{9b}", "u{202e}"] {
            assert!(shown.contains(number), "{form} does not show {number}");
        }
    }
}

fn hostile() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        3 => prop::sample::select(&SEQUENCES[..]).prop_map(str::to_owned),
        2 => prop::char::ranges(vec!['\0'..='\u{9f}', '\u{2000}'..='\u{206f}'].into()).prop_map(String::from),
        1 => any::<String>(),
    ];
    prop::collection::vec(part, 0..4).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn any_text_in_any_field_is_shown_and_not_obeyed(before in hostile(), after in hostile(), which in 0usize..5) {
        let (subjects, places) = all();
        let (name, results) = &subjects[which];
        check(name, &with(results, places, |text| format!("{before}{text}{after}")));
    }
}

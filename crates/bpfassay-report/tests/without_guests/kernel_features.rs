// SPDX-License-Identifier: MIT OR Apache-2.0
//! The matrix of what works, breaks and differs.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_protocol::{Operation, kernel_feature::FeatureKind, operation::Totals, probe::Probe};
use bpfassay_report::{
    derive,
    render::{Style, markdown, text},
};
use bpfassay_results::{FeatureVerdict, Outcome, Results};

use crate::common::{
    contents,
    matrix::{feature, outcome, study},
};

fn surprises(results: &Results) -> Vec<(String, String, FeatureVerdict)> {
    let matrix = results.kernel_features.as_ref().unwrap();
    matrix.surprises().map(|(what, target, verdict)| (what, target.to_string(), verdict)).collect()
}

#[test]
fn what_is_known_beforehand_is_no_surprise() {
    let results = derive(&contents(&study(""), outcome));
    assert_eq!(surprises(&results), []);
    let matrix = results.kernel_features.as_ref().unwrap();
    let verdicts = |row: usize| matrix.features[row].cells.iter().map(|cell| cell.verdict).collect::<Vec<_>>();
    assert_eq!(verdicts(0), [FeatureVerdict::Works; 4]);
    assert_eq!(verdicts(1), [FeatureVerdict::Refused; 4]);
    assert_eq!(
        verdicts(2),
        [FeatureVerdict::Refused, FeatureVerdict::Works, FeatureVerdict::Refused, FeatureVerdict::Refused]
    );
    assert_eq!(
        verdicts(3),
        [FeatureVerdict::Refused, FeatureVerdict::Works, FeatureVerdict::Refused, FeatureVerdict::Works]
    );
    let fexit = matrix.configurations.iter().find(|row| row.probe.probe == Probe::Fexit).unwrap();
    let verdicts: Vec<_> = fexit.cells.iter().map(|cell| cell.verdict).collect();
    assert_eq!(
        verdicts,
        [FeatureVerdict::Works, FeatureVerdict::Works, FeatureVerdict::Refused, FeatureVerdict::Works]
    );
    assert!(fexit.cells[0].counted.value().unwrap().is_exact());
}

#[test]
fn a_wrong_expectation_is_named_in_either_direction() {
    let results = derive(&contents(
        &study(
            r#"
[expected_features]
since = [
    { feature = "map-type ringbuf", kernel = "6.6", source = "made up" },
    { feature = "kfunc fexit/bpf_strcmp", kernel = "6.2", aarch64 = "never", source = "made up" },
]
"#,
        ),
        outcome,
    ));
    assert_eq!(
        surprises(&results),
        [
            ("map-type ringbuf".to_owned(), "x86_64 6.1".to_owned(), FeatureVerdict::UnexpectedSuccess),
            ("map-type ringbuf".to_owned(), "aarch64 6.1".to_owned(), FeatureVerdict::UnexpectedSuccess),
            ("kfunc fexit/bpf_strcmp".to_owned(), "x86_64 6.12".to_owned(), FeatureVerdict::UnexpectedRefusal),
        ]
    );
    let shown = text(&results, Style::default()).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("3 outcomes AGAINST EXPECTATION"), "{shown}");
    assert!(
        shown.contains("! map-type ringbuf on x86_64 6.1: works; expected to be refused: since 6.6 only"),
        "{shown}"
    );
}

#[test]
fn one_call_too_few_is_not_exact() {
    let results = derive(&contents(&study(""), |block, run| match outcome(block, run) {
        Outcome::Measured(mut figures) if run.spec.probe.probe == Probe::Kprobe => {
            let totals = figures.phases[0].moved.entry(Operation::Write).or_default();
            *totals += Totals { calls: 1, bytes: 0, errors: 0 };
            Outcome::Measured(figures)
        }
        other => other,
    }));
    let found = surprises(&results);
    assert_eq!(found.len(), 4);
    assert!(
        found.iter().all(|(what, _, verdict)| what == "kprobe" && *verdict == FeatureVerdict::Miscounts),
        "{found:?}"
    );
    assert!(text(&results, Style::default()).contains("BAD"));
}

#[test]
fn a_feature_of_which_nothing_is_known_is_shown_and_not_evaluated() {
    let results = derive(&contents(&study(""), |block, run| match outcome(block, run) {
        Outcome::Measured(mut figures) if run.spec.probe.is_baseline() => {
            figures.features.push(feature(FeatureKind::System, "new-thing", false));
            Outcome::Measured(figures)
        }
        other => other,
    }));
    assert_eq!(surprises(&results), []);
    assert!(text(&results, Style::default()).contains("system new-thing"));
}

#[test]
fn lines_fit_and_hold_no_control_characters() {
    let results = derive(&contents(&study(""), outcome));
    for width in [None, Some(80), Some(120)] {
        let shown = text(&results, Style { width });
        let limit = width.map_or(100, usize::from);
        // Nothing above the matrix is wrapped without a terminal.
        for line in shown.lines().skip_while(|line| width.is_none() && !line.starts_with("study ")) {
            assert!(line.chars().count() <= limit, "{width:?}: {line}");
            assert!(!line.contains('\u{1b}'), "{line}");
        }
    }
    assert!(markdown(&results).contains("| --- |"));
}

#[test]
fn as_it_looks() {
    insta::assert_snapshot!(text(&derive(&contents(&study(""), outcome)), Style::default()));
}

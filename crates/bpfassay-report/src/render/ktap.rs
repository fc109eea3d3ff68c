// SPDX-License-Identifier: MIT OR Apache-2.0
//! KTAP, version 1, for tools around the kernel's own tests: a subtest per suite, a line per case.

use std::fmt::Write as _;

use super::{
    cases::{Account, CaseOutcome, CaseSuite, SuiteCase, suites},
    finished,
    format::ReportFormat,
    head::head,
    plain,
};
use bpfassay_results::Results;

pub(super) const FORMAT: ReportFormat = ReportFormat {
    name: "ktap",
    about: "Test cases, for tools of kernel developers",
    file: None,
    render: |results, _| Ok(ktap(results).into()),
};

/// Renders `results` as KTAP.
///
/// A failed run and an undecided case have the directive `ERROR`; neither passes. Diagnostic lines
/// above a case have the failure and the evidence of a tool's findings.
#[must_use]
pub fn ktap(results: &Results) -> String {
    let suites = suites(results);
    let mut text = "KTAP version 1\n".to_owned();
    let head = head(results);
    for line in head.conclusion.iter().cloned().chain(head.facts()) {
        let _ = writeln!(text, "# {}", plain::line(&line));
    }
    let _ = writeln!(text, "1..{}", suites.len());
    for (number, suite) in (1_usize..).zip(&suites) {
        write_suite(&mut text, number, suite);
    }
    finished(text)
}

fn write_suite(text: &mut String, number: usize, suite: &CaseSuite) {
    // Readers reject a plan without cases, so an empty suite is a single test.
    if !suite.cases.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  KTAP version 1\n  # Subtest: {}\n  1..{}", name(&suite.name), suite.cases.len());
        for (number, case) in (1_usize..).zip(&suite.cases) {
            write_case(text, number, case);
        }
    }
    let is_failed = |case: &SuiteCase| matches!(case.outcome, CaseOutcome::Failed { .. });
    let result = if suite.cases.iter().any(is_failed) { "not ok" } else { "ok" };
    let _ = writeln!(text, "{result} {number} {}", name(&suite.name));
}

fn write_case(text: &mut String, number: usize, case: &SuiteCase) {
    let mut diagnostics = case.evidence.clone();
    let (result, directive) = match &case.outcome {
        CaseOutcome::Passed => ("ok", String::new()),
        CaseOutcome::Skipped(reason) => ("ok", format!(" # SKIP {}", plain::line(reason))),
        CaseOutcome::Failed { account: Account::Wrong, what, message } => {
            diagnostics.insert(0, format!("{what}: {message}"));
            ("not ok", String::new())
        }
        CaseOutcome::Failed { account: Account::Failed | Account::Undecided, what, message } => {
            ("not ok", format!(" # ERROR {what}: {}", plain::line(message)))
        }
    };
    for line in diagnostics {
        let _ = writeln!(text, "  # {}", plain::line(&line));
    }
    let _ = writeln!(text, "  {result} {number} {}{directive}", name(&case.name));
}

/// Formats a description: `#` would end it, so it is shown as a number.
fn name(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in plain::line(text).chars() {
        if c == '#' { plain::push_escaped(&mut shown, c) } else { shown.push(c) }
    }
    shown
}

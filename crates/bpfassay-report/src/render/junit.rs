// SPDX-License-Identifier: MIT OR Apache-2.0
//! JUnit for CI systems: a test case per gate, and one per cell for whether it ran and attached as
//! expected.

use std::time::Duration;

use bpfassay_stats::gate_decision::Change;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::{
    cases::{Account, CaseOutcome, CaseSuite, SuiteCase, suites},
    compare, finished,
    format::{FormatError, ReportFormat},
    head::head,
    plain,
};
use crate::{
    compare::{CellComparison, Comparison, DirectChange, Fate, MetricComparison},
    labels,
};
use bpfassay_results::{Figure, Results};

pub(super) const FORMAT: ReportFormat = ReportFormat {
    name: "junit",
    about: "Test cases, for CI systems",
    file: None,
    render: |results, _| Ok(junit(results)?.into()),
};

/// Renders `results` as JUnit.
///
/// An inconclusive gate is an error, and a regression is a failure; neither passes. The time of a
/// cell is the time of all its runs by the host's clock. The evidence of a tool's findings is in
/// the output of the cell, and in the failure of a gate that denies them.
///
/// # Errors
/// [`FormatError::Junit`], if the XML cannot be written, such as for a character that XML cannot
/// contain.
pub fn junit(results: &Results) -> Result<String, FormatError> {
    let mut report = Report::new(name(&format!("bpfassay {}", results.plan.title())));
    let head = head(results);
    let mut suites: Vec<TestSuite> = suites(results).iter().map(suite).collect();
    // JUnit has properties only for suites.
    if let Some(first) = suites.first_mut() {
        let conclusion = head.conclusion.iter().map(|line| ("conclusion", line));
        for (name, value) in conclusion.chain(head.facts.iter().map(|(name, fact)| (*name, fact))) {
            first.add_property((name, &*plain::line(value)));
        }
    }
    report.add_test_suites(suites);
    written(&report)
}

/// Renders `comparison` as JUnit: a test case per cell without figures in one of the results, and
/// one per metric of the other cells.
///
/// A regression is a failure. New, gone and inconclusive figures are skipped, and so do not pass.
///
/// # Errors
/// [`FormatError::Junit`], if the XML cannot be written, such as for a character that XML cannot
/// contain.
pub fn comparison_junit(comparison: &Comparison) -> Result<String, FormatError> {
    let [base, new] = compare::sides(comparison);
    let mut report = Report::new(name(&format!("bpfassay {new} against {base}")));
    let mut suite = TestSuite::new(name(&format!("{new} against {base}")));
    suite.add_test_cases(comparison.cells.iter().flat_map(compared));
    report.add_test_suite(suite);
    written(&report)
}

/// Puts `text` on one line and shows control characters as numbers: the library would drop them.
fn name(text: &str) -> String {
    plain::line(text).into_owned()
}

fn suite(suite: &CaseSuite) -> TestSuite {
    let mut written = TestSuite::new(name(&suite.name));
    let times = suite.cases.iter().filter_map(|case| case.time);
    if let Some(time) = times.reduce(Duration::saturating_add) {
        written.set_time(time);
    }
    written.add_test_cases(suite.cases.iter().map(of_case));
    written
}

fn of_case(from: &SuiteCase) -> TestCase {
    let evidence = plain::text(&from.evidence.join("\n")).into_owned();
    let mut status = match &from.outcome {
        CaseOutcome::Passed => TestCaseStatus::success(),
        CaseOutcome::Skipped(reason) => skipped(reason),
        CaseOutcome::Failed { account, what, message } => {
            let kind = match account {
                Account::Wrong => NonSuccessKind::Failure,
                Account::Failed | Account::Undecided => NonSuccessKind::Error,
            };
            failed(kind, what, message.clone())
        }
    };
    let is_failed = matches!(from.outcome, CaseOutcome::Failed { .. });
    if is_failed && !evidence.is_empty() {
        status.set_description(evidence.as_str());
    }
    let mut case = case(&from.name, &from.class, status);
    if !is_failed && !evidence.is_empty() {
        case.set_system_out(evidence.as_str());
    }
    if let Some(time) = from.time {
        case.set_time(time);
    }
    case
}

fn case(what: &str, class: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(name(what), status);
    case.set_classname(name(class));
    case
}

/// Writes the report in the form of the schema by which Jenkins validates (junit-10.xsd of its
/// xUnit plugin). That schema has the number of skipped cases for each suite, not for all.
fn written(report: &Report) -> Result<String, FormatError> {
    let text = finished(report.to_string()?);
    let Some((before, rest)) = text.split_once("<testsuites ") else { return Ok(text) };
    let Some((attributes, suites)) = rest.split_once('>') else { return Ok(text) };
    let skipped =
        attributes.split_once(" skipped=\"").and_then(|(before, rest)| Some((before, rest.split_once('"')?.1)));
    let attributes = skipped.map_or_else(|| attributes.to_owned(), |(before, after)| format!("{before}{after}"));
    Ok(format!("{before}<testsuites {attributes}>{suites}"))
}

fn skipped(message: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(plain::text(message));
    status
}

fn compared(cell: &CellComparison) -> Vec<TestCase> {
    let of = |metric: String, status: TestCaseStatus| {
        let name = format!("{}, {}, {}, {}{metric}", cell.target(), cell.case, cell.file_system, cell.under_test);
        case(&name, &format!("{}.{}", cell.target(), cell.under_test), status)
    };
    let status = match &cell.fate {
        Fate::Compared => {
            let metric = |metric: &MetricComparison| of(format!(", {}", metric.metric), changed(metric));
            let direct = |metric: &MetricComparison| {
                Some(of(format!(", {}, direct cost", metric.metric), direct_changed(metric.direct.as_ref()?)))
            };
            let named = |what: &'static str, names: &[String]| -> Vec<TestCase> {
                let failure = |name: &String| {
                    of(
                        format!(", {what} {name}"),
                        failed(NonSuccessKind::Failure, what, format!("{name}: the base has none")),
                    )
                };
                names.iter().map(failure).collect()
            };
            let found = named("pitfall", &cell.findings_new).into_iter().chain(named("finding", &cell.faults_new));
            let direct = cell.metrics.iter().filter_map(direct);
            return cell.metrics.iter().map(metric).chain(direct).chain(found).collect();
        }
        Fate::Broken { reason } => failed(NonSuccessKind::Failure, "broken", reason.clone()),
        Fate::New => skipped("new: the base has no such cell"),
        Fate::Gone => skipped("gone: the new results have no such cell"),
        Fate::Mended { reason } => skipped(&format!("mended; in the base: {reason}")),
        Fate::Neither { reason } => skipped(&format!("measured in neither: {reason}")),
    };
    vec![of(String::new(), status)]
}

fn changed(metric: &MetricComparison) -> TestCaseStatus {
    let ratio = match metric.ratio.value() {
        Some(ratio) => format!("{} new / base {}", metric.measure, labels::change(&ratio.estimate)),
        None => metric.ratio.reason().unwrap_or(labels::NONE).to_owned(),
    };
    match metric.change {
        Change::Increase if metric.change_of_tool().is_none() => skipped(&format!("baseline slower: {ratio}")),
        _ if metric.change == Change::Increase || metric.miscounts() => {
            failed(NonSuccessKind::Failure, &compare::change(metric).to_lowercase(), ratio)
        }
        Change::Inconclusive => skipped(&format!("inconclusive: {ratio}")),
        Change::Increase | Change::Decrease | Change::Equivalent => TestCaseStatus::success(),
    }
}

fn direct_changed(direct: &Figure<DirectChange>) -> TestCaseStatus {
    let direct = match direct {
        Figure::Value(direct) => direct,
        Figure::NotMeasured(reason) => return skipped(&format!("{}: {reason}", labels::NONE)),
    };
    let [base, new] = direct.per_call;
    let found = format!("{base:.1} → {new:.1} instructions/call");
    match direct.change {
        Change::Increase => failed(NonSuccessKind::Failure, "higher", found),
        Change::Inconclusive => skipped(&format!("inconclusive: {found}")),
        Change::Decrease | Change::Equivalent => TestCaseStatus::success(),
    }
}

fn failed(kind: NonSuccessKind, what: &str, message: String) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_type(what).set_message(plain::text(&message));
    status
}

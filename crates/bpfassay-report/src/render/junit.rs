// SPDX-License-Identifier: MIT OR Apache-2.0
//! JUnit, as CI systems read it: a test case per gate, and per cell whether it ran and attached as expected.

use bpfassay_stats::{Verdict, gate::Change};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::{compare, finished, format::Format, plain};
use crate::{
    compare::{CellComparison, Comparison, DirectChange, Fate, MetricComparison},
    labels,
};
use bpfassay_results::{Attach, CellFailure, CellResult, FailureKind, Figure, GateResult, Results};

/// See [`super::FORMATS`].
pub(super) const FORMAT: Format = Format {
    name: "junit",
    about: "Test cases, for CI systems",
    file: None,
    render: |results, _| Ok(junit(results)?.into()),
};

/// `results` as JUnit.
///
/// An inconclusive gate is an error, a regression a failure: neither passes.
///
/// # Errors
/// [`quick_junit::SerializeError`] where the XML cannot be written, such as for a character that XML cannot contain.
pub fn junit(results: &Results) -> Result<String, quick_junit::SerializeError> {
    let study = &results.plan.study.name;
    let mut report = Report::new(name(&format!("bpfassay {study}")));
    let mut cells = TestSuite::new(name(&format!("{study} cells")));
    cells.add_test_cases(results.cells.iter().map(cell));
    report.add_test_suite(cells);
    if !results.gates.is_empty() {
        let mut gates = TestSuite::new(name(&format!("{study} gates")));
        gates.add_test_cases(results.gates.iter().map(gate));
        report.add_test_suite(gates);
    }
    if let Some(matrix) = &results.kernel_features {
        let mut surprises = TestSuite::new(name(&format!("{study} expectations")));
        for (what, target, verdict) in matrix.surprises() {
            let status = failed(NonSuccessKind::Failure, "surprise", format!("{verdict:?}"));
            surprises.add_test_case(case(&format!("{what} on {target}"), &target.to_string(), status));
        }
        report.add_test_suite(surprises);
    }
    written(&report)
}

/// `comparison` as JUnit: a test case per cell that has no figures in one of the two, and per metric of the others.
///
/// What got worse is a failure; what is new, gone, or neither shown to have changed nor not to is skipped, and so no pass.
///
/// # Errors
/// [`quick_junit::SerializeError`] where the XML cannot be written, such as for a character that XML cannot contain.
pub fn comparison_junit(comparison: &Comparison) -> Result<String, quick_junit::SerializeError> {
    let [base, new] = &comparison.studies;
    let mut report = Report::new(name(&format!("bpfassay {new} against {base}")));
    let mut suite = TestSuite::new(name(&format!("{new} against {base}")));
    suite.add_test_cases(comparison.cells.iter().flat_map(compared));
    report.add_test_suite(suite);
    written(&report)
}

/// `text` on one line, with control characters shown by their numbers: the library would leave them out.
fn name(text: &str) -> String {
    plain::line(text).into_owned()
}

fn case(what: &str, class: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(name(what), status);
    case.set_classname(name(class));
    case
}

/// In the form of the schema by which Jenkins validates (junit-10.xsd of its xUnit plugin): there the number of skipped cases
/// is reported for each suite, not for all.
fn written(report: &Report) -> Result<String, quick_junit::SerializeError> {
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
            return cell.metrics.iter().map(metric).chain(cell.metrics.iter().filter_map(direct)).collect();
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
        Some(ratio) => format!("{} new / base {}", metric.measure, labels::ratio_finely(&ratio.estimate)),
        None => metric.ratio.reason().unwrap_or(labels::NONE).to_owned(),
    };
    match metric.change {
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

/// The most specific failure of a cell: one of its own before one that it only suffers from.
fn first_failure(cell: &CellResult) -> Option<&CellFailure> {
    let is_own = |failed: &&CellFailure| failed_type(failed) == "failed";
    cell.failures.iter().find(is_own).or_else(|| cell.failures.first())
}

/// What a failure is for whoever decides whether to repeat it.
const fn failed_type(failed: &CellFailure) -> &'static str {
    match failed.failure.kind {
        FailureKind::Host => "host",
        FailureKind::NotTried => "not tried",
        _ => "failed",
    }
}

fn cell(cell: &CellResult) -> TestCase {
    let status = match (&cell.attach, cell.failures.first()) {
        (_, Some(first)) => {
            let first = first_failure(cell).unwrap_or(first);
            failed(NonSuccessKind::Error, failed_type(first), format!("{}: {}", first.run, first.failure))
        }
        (Attach::Refused { refusal, expected: true, .. }, None) => {
            skipped(&format!("refused, as expected: {}", labels::refusal(refusal)))
        }
        (Attach::Refused { refusal, .. }, None) => {
            failed(NonSuccessKind::Failure, "refused", format!("{}: {}", labels::refusal(refusal), refusal.message))
        }
        (Attach::Unsteady { attached, refused, refusal }, None) => failed(
            NonSuccessKind::Failure,
            "unsteady",
            format!("attached in {attached}, refused in {refused} runs: {}", refusal.message),
        ),
        (Attach::Attached { in_spite_of: Some(expectation), .. }, None) => failed(
            NonSuccessKind::Failure,
            "unexpected",
            format!("attached though errno {} was expected: {}", expectation.errno, expectation.reason),
        ),
        (Attach::Unknown { reason }, None) => failed(NonSuccessKind::Error, "not run", reason.clone()),
        (Attach::Baseline | Attach::Attached { .. }, None) if cell.runs.measured < cell.runs.planned => {
            let counts = format!("{} of {} runs measured", cell.runs.measured, cell.runs.planned);
            failed(NonSuccessKind::Error, "unfinished", counts)
        }
        (Attach::Baseline | Attach::Attached { .. }, None) => TestCaseStatus::success(),
    };
    case(&cell.cell, &format!("{}.{}", cell.target, cell.under_test()), status)
}

fn gate(gate: &GateResult) -> TestCase {
    let status = match gate.verdict {
        Verdict::Pass => TestCaseStatus::success(),
        Verdict::Regression => failed(NonSuccessKind::Failure, "regression", gate.found.clone()),
        Verdict::Inconclusive => failed(NonSuccessKind::Error, "inconclusive", gate.found.clone()),
    };
    let metric = gate.metric.map(|metric| format!(", {metric}")).unwrap_or_default();
    case(&format!("{}{metric}: {}", gate.cell, gate.demand), &format!("gate {}", gate.gate + 1), status)
}

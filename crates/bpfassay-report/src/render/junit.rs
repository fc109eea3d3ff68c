//! JUnit, as CI systems read it: a test case per gate, and per cell whether it ran and attached as expected.

use bpfassay_stats::Verdict;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::{
    Results,
    results::{Attach, CellResult, GateResult},
    words,
};

/// `results` as JUnit.
///
/// An inconclusive gate is an error, a regression a failure: neither passes.
///
/// # Errors
/// [`quick_junit::SerializeError`]
pub fn junit(results: &Results) -> Result<String, quick_junit::SerializeError> {
    let study = &results.plan.study.name;
    let mut report = Report::new(format!("bpfassay {study}"));
    let mut cells = TestSuite::new(format!("{study} cells"));
    cells.add_test_cases(results.cells.iter().map(cell));
    report.add_test_suite(cells);
    if !results.gates.is_empty() {
        let mut gates = TestSuite::new(format!("{study} gates"));
        gates.add_test_cases(results.gates.iter().map(gate));
        report.add_test_suite(gates);
    }
    if let Some(matrix) = &results.capabilities {
        let mut surprises = TestSuite::new(format!("{study} expectations"));
        for (what, target, verdict) in matrix.surprises() {
            let status = failed(NonSuccessKind::Failure, "surprise", format!("{verdict:?}"));
            surprises.add_test_case(TestCase::new(format!("{what} on {target}"), status));
        }
        report.add_test_suite(surprises);
    }
    report.to_string()
}

fn failed(kind: NonSuccessKind, what: &str, message: String) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_type(what).set_message(words::printable(&message));
    status
}

fn cell(cell: &CellResult) -> TestCase {
    let status = match (&cell.attach, cell.failures.first()) {
        (_, Some(first)) => failed(NonSuccessKind::Error, "failed", format!("{}: {}", first.run, first.failure)),
        (Attach::Refused { refusal, expected: true, .. }, None) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(words::printable(&format!("refused, as expected: {}", words::refusal(refusal))));
            status
        }
        (Attach::Refused { refusal, .. }, None) => {
            failed(NonSuccessKind::Failure, "refused", format!("{}: {}", words::refusal(refusal), refusal.message))
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
    let mut case = TestCase::new(cell.cell.clone(), status);
    case.set_classname(format!("{}.{}", cell.target, cell.under_test()));
    case
}

fn gate(gate: &GateResult) -> TestCase {
    let status = match gate.verdict {
        Verdict::Pass => TestCaseStatus::success(),
        Verdict::Regression => failed(NonSuccessKind::Failure, "regression", gate.found.clone()),
        Verdict::Inconclusive => failed(NonSuccessKind::Error, "inconclusive", gate.found.clone()),
    };
    let access = gate.access.map(|access| format!(", {access}")).unwrap_or_default();
    let mut case = TestCase::new(format!("{}{access}: {}", gate.cell, gate.demand), status);
    case.set_classname(format!("gate {}", gate.gate + 1));
    case
}

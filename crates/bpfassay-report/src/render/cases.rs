// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cases that formats for CI systems write: per cell whether it ran and attached as expected,
//! per gate the verdict, per kernel feature the surprise.

use std::{collections::HashMap, time::Duration};

use bpfassay_stats::Verdict;
use bpfassay_tool::finding::{Certainty, FindingResult, FindingStatus};

use crate::labels;
use bpfassay_results::{Attach, CellFailure, CellResult, Demand, FailureKind, GateResult, Results};

pub(super) struct CaseSuite {
    pub(super) name: String,
    pub(super) cases: Vec<SuiteCase>,
}

pub(super) struct SuiteCase {
    pub(super) name: String,
    /// The subject of the case: target and what is under test, or the gate.
    #[cfg_attr(not(feature = "junit"), expect(dead_code, reason = "only JUnit has it"))]
    pub(super) class: String,
    pub(super) outcome: CaseOutcome,
    /// How long all runs took by the host's clock; `None` if none ran.
    #[cfg_attr(not(feature = "junit"), expect(dead_code, reason = "only JUnit has it"))]
    pub(super) time: Option<Duration>,
    /// Evidence of the case's findings, one line each.
    pub(super) evidence: Vec<String>,
}

/// The outcome of a case.
pub(super) enum CaseOutcome {
    Passed,
    /// Neither passed nor failed, with the reason.
    Skipped(String),
    /// Did not pass.
    Failed {
        account: Account,
        /// The failure in one or two words.
        what: &'static str,
        message: String,
    },
}

/// Why a case did not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    /// The case was measured and is wrong.
    Wrong,
    /// The thing under test, or the guest under it, failed.
    Failed,
    /// The case was not measured, or not decided.
    Undecided,
}

/// Returns the cases of `results` in suites: cells first, then gates if there are some, then
/// expectations if kernel features were tried.
pub(super) fn suites(results: &Results) -> Vec<CaseSuite> {
    let study = results.plan.title();
    let times = times(results);
    let of_cell = |found: &CellResult| SuiteCase { time: times.get(found.cell.as_str()).copied(), ..cell(found) };
    let mut suites =
        vec![CaseSuite { name: format!("{study} cells"), cases: results.cells.iter().map(of_cell).collect() }];
    if !results.gates.is_empty() {
        let cells: HashMap<&str, &CellResult> = results.cells.iter().map(|cell| (cell.cell.as_str(), cell)).collect();
        let of_gate = |found: &GateResult| gate(results, cells.get(found.cell.as_str()).copied(), found);
        suites.push(CaseSuite { name: format!("{study} gates"), cases: results.gates.iter().map(of_gate).collect() });
    }
    if let Some(matrix) = &results.kernel_features {
        let surprise = |(what, target, verdict)| SuiteCase {
            name: format!("{what} on {target}"),
            class: format!("{target}"),
            outcome: failed(Account::Wrong, "surprise", format!("{verdict:?}")),
            time: None,
            evidence: Vec::new(),
        };
        let cases = matrix.surprises().map(surprise).collect();
        suites.push(CaseSuite { name: format!("{study} expectations"), cases });
    }
    suites
}

/// Sums how long the runs of each cell took, all kinds of runs together.
fn times(results: &Results) -> HashMap<&str, Duration> {
    let mut times: HashMap<&str, Duration> = HashMap::new();
    for run in results.runs.iter().filter(|run| run.record.duration_ms > 0) {
        let time = times.entry(run.record.cell.as_str()).or_default();
        *time = time.saturating_add(Duration::from_millis(run.record.duration_ms));
    }
    times
}

fn failed(account: Account, what: &'static str, message: String) -> CaseOutcome {
    CaseOutcome::Failed { account, what, message }
}

/// Returns the most specific failure of a cell: its own failure before one that it only suffers
/// from.
fn first_failure(cell: &CellResult) -> Option<&CellFailure> {
    let is_own = |failed: &&CellFailure| account_of(failed).1 == "failed";
    cell.failures.iter().find(is_own).or_else(|| cell.failures.first())
}

/// Classifies a failure for the decision whether to repeat it.
pub(super) const fn account_of(failed: &CellFailure) -> (Account, &'static str) {
    match failed.failure.kind {
        FailureKind::Host => (Account::Undecided, "host"),
        FailureKind::NotTried => (Account::Failed, "not tried"),
        _ => (Account::Failed, "failed"),
    }
}

/// Creates the case of `cell`, without its time.
pub(super) fn cell(cell: &CellResult) -> SuiteCase {
    let outcome = match (&cell.attach, first_failure(cell)) {
        (_, Some(first)) => {
            let (account, what) = account_of(first);
            failed(account, what, format!("{}: {}", first.run, first.failure))
        }
        (Attach::Refused { refusal, expected: true, .. }, None) => {
            CaseOutcome::Skipped(format!("refused, as expected: {}", labels::refusal(refusal)))
        }
        (Attach::Refused { refusal, .. }, None) => {
            failed(Account::Wrong, "refused", format!("{}: {}", labels::refusal(refusal), refusal.message))
        }
        (Attach::Unsteady { attached, refused, refusal }, None) => failed(
            Account::Wrong,
            "unsteady",
            format!("attached in {attached}, refused in {refused} runs: {}", refusal.message),
        ),
        (Attach::Attached { in_spite_of: Some(expectation), .. }, None) => failed(
            Account::Wrong,
            "unexpected",
            format!("attached though errno {} was expected: {}", expectation.errno, expectation.reason),
        ),
        (Attach::Unknown { reason }, None) => failed(Account::Undecided, "not run", reason.clone()),
        (Attach::Baseline | Attach::Attached { .. }, None) if cell.runs.measured < cell.runs.planned => {
            let counts = format!("{} of {} runs measured", cell.runs.measured, cell.runs.planned);
            failed(Account::Undecided, "unfinished", counts)
        }
        (Attach::Baseline | Attach::Attached { .. }, None) => match cell.without_figures() {
            Some((runs, why)) => {
                let message = format!("{runs} of {} runs without figures: {why}", cell.runs.measured);
                failed(Account::Failed, "not measured", message)
            }
            None => CaseOutcome::Passed,
        },
    };
    SuiteCase {
        name: cell.cell.clone(),
        class: format!("{}.{}", cell.target, cell.under_test()),
        outcome,
        time: None,
        evidence: found(cell).flat_map(evidence).collect(),
    }
}

/// Returns the findings of the tool of `cell` whose fault was found.
pub(super) fn found(cell: &CellResult) -> impl Iterator<Item = &FindingResult> {
    let findings = cell.tool_result.iter().flat_map(|result| &result.findings);
    findings.filter(|finding| finding.status.is_found())
}

/// Formats the evidence of `finding`, one line each: `left-behind (proven): …`.
pub(super) fn evidence(finding: &FindingResult) -> Vec<String> {
    let FindingStatus::Found { evidence, certainty } = &finding.status else { return Vec::new() };
    let name = match certainty.map(Certainty::name) {
        Some(certainty) => format!("{} ({certainty})", finding.kind),
        None => finding.kind.name().to_owned(),
    };
    if evidence.is_empty() { vec![name] } else { evidence.iter().map(|line| format!("{name}: {line}")).collect() }
}

/// Whether gate `index` of the study, from 0, denies `finding`.
pub(super) fn denies(results: &Results, index: u32, finding: &FindingResult) -> bool {
    let gate = usize::try_from(index).ok().and_then(|index| results.plan.study.gates.get(index));
    gate.is_some_and(|gate| gate.deny.contains(&finding.kind))
}

/// Creates the case of a gate's verdict on `cell`.
fn gate(results: &Results, cell: Option<&CellResult>, gate: &GateResult) -> SuiteCase {
    let outcome = match gate.verdict {
        Verdict::Pass => CaseOutcome::Passed,
        Verdict::Regression => failed(Account::Wrong, "regression", gate.found.clone()),
        Verdict::Inconclusive => failed(Account::Undecided, "inconclusive", gate.found.clone()),
    };
    let findings = cell.into_iter().flat_map(found).filter(|_| gate.demand == Demand::Findings);
    let metric = gate.metric.map(|metric| format!(", {metric}")).unwrap_or_default();
    SuiteCase {
        name: format!("{}{metric}: {}", gate.cell, gate.demand),
        class: format!("gate {}", gate.gate.saturating_add(1)),
        outcome,
        time: None,
        evidence: findings.filter(|finding| denies(results, gate.gate, finding)).flat_map(evidence).collect(),
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summarises results in a few words that claim no more than was measured: `exact, 7 of 8; failed,
//! 1 of 8`.

use std::collections::{BTreeMap, HashSet};

use bpfassay_stats::Verdict;
use bpfassay_study::Clock;
use bpfassay_tool::finding::FindingStatus;

use super::cases::{self, Account};
use crate::labels;
use bpfassay_results::{Attach, ByteErrors, CellResult, Demand, Figure, GateResult, Results};

pub(super) struct ResultSummary {
    pub(super) words: String,
    pub(super) class: Class,
}

/// How good or bad the results are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Everything is as expected.
    Good,
    /// Nothing that is good or bad was measured.
    Neutral,
    /// Something is not known, or needs attention.
    Open,
    Bad,
}

impl Class {
    /// Returns the name of the class in formats with colours, empty for no colour.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Neutral => "",
            Self::Open => "open",
            Self::Bad => "bad",
        }
    }
}

/// The outcome of one cell, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CellState {
    Exact,
    NothingFound,
    WithinBounds,
    NothingFoundInPart,
    Measured,
    RefusedAsExpected,
    NotExact,
    Found,
    Denied,
    Refused,
    Unsteady,
    Unexpected,
    Failed,
    Partly,
    NotMeasured,
}

impl CellState {
    /// Describes the outcome in a few words.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::NothingFound => "nothing found",
            Self::WithinBounds => "nothing found (within bounds, not exact)",
            Self::NothingFoundInPart => "nothing found in part of its figures",
            Self::Measured => "measured",
            Self::RefusedAsExpected => "refused as expected",
            Self::NotExact => "not exact",
            Self::Found => "with findings",
            Self::Denied => "with denied findings",
            Self::Refused => "refused",
            Self::Unsteady => "unsteady",
            Self::Unexpected => "attached unexpectedly",
            Self::Failed => "failed",
            Self::Partly => "partly measured",
            Self::NotMeasured => "not measured",
        }
    }

    pub(super) const fn class(self) -> Class {
        match self {
            Self::Exact | Self::NothingFound => Class::Good,
            Self::WithinBounds | Self::Measured | Self::RefusedAsExpected => Class::Neutral,
            Self::NothingFoundInPart | Self::NotExact | Self::Found | Self::Partly | Self::NotMeasured => Class::Open,
            Self::Denied | Self::Refused | Self::Unsteady | Self::Unexpected | Self::Failed => Class::Bad,
        }
    }
}

/// Summarises `results`: the verdicts on gates, surprises, and the numbers of cells with each
/// outcome, for cells with something under test. Baselines are reported if they were not measured
/// completely.
pub(super) fn standing(results: &Results) -> ResultSummary {
    let mut parts: Vec<(String, Class)> = Vec::new();
    parts.extend(gates(results));
    if let Some(matrix) = &results.kernel_features {
        match matrix.surprises().count() {
            0 => parts.push(("no surprise".to_owned(), Class::Good)),
            1 => parts.push(("1 surprise".to_owned(), Class::Bad)),
            many => parts.push((format!("{many} surprises"), Class::Bad)),
        }
    }
    let denied = denied(results);
    let (baselines, tested): (Vec<&CellResult>, Vec<&CellResult>) =
        results.cells.iter().partition(|cell| cell.is_baseline());
    for (of, cells) in [("", tested), (" baselines", baselines)] {
        let mut counts = BTreeMap::<CellState, usize>::new();
        for cell in &cells {
            *counts.entry(state(cell, denied.contains(cell.cell.as_str()))).or_default() += 1;
        }
        for (state, count) in counts {
            // A baseline that was measured is not worth reporting.
            if of.is_empty() || state != CellState::Measured {
                parts.push((format!("{}, {count} of {}{of}", state.words(), cells.len()), state.class()));
            }
        }
    }
    parts.extend(not_compared(results.cells.iter()).map(|words| (words, Class::Open)));
    parts.extend(races(results).map(|_| ("races not evaluated".to_owned(), Class::Open)));
    let class = parts.iter().map(|(_, class)| *class).filter(|class| *class != Class::Neutral).max();
    let words: Vec<String> = parts.into_iter().map(|(words, _)| words).collect();
    match words.is_empty() {
        true => ResultSummary { words: "nothing under test".to_owned(), class: Class::Neutral },
        false => ResultSummary { words: words.join("; "), class: class.unwrap_or(Class::Neutral) },
    }
}

/// Counts the verdicts on the gates of the study: `gates: 1 regression, 7 pass`.
fn gates(results: &Results) -> Option<(String, Class)> {
    if results.plan.study.gates.is_empty() {
        return None;
    }
    let of = |verdict: Verdict| results.gates.iter().filter(|gate| gate.verdict == verdict).count();
    let all = [Verdict::Regression, Verdict::Inconclusive, Verdict::Pass];
    let counts: Vec<String> = all
        .into_iter()
        .filter(|verdict| of(*verdict) > 0)
        .map(|verdict| format!("{} {}", of(verdict), labels::verdict(verdict)))
        .collect();
    if counts.is_empty() {
        return Some(("gates: none applies".to_owned(), Class::Open));
    }
    let class = match (of(Verdict::Regression), of(Verdict::Inconclusive)) {
        (0, 0) => Class::Good,
        (0, _) => Class::Open,
        _ => Class::Bad,
    };
    Some((format!("gates: {}", counts.join(", ")), class))
}

/// Returns the cells whose tool has a finding that a gate denies.
pub(super) fn denied(results: &Results) -> HashSet<&str> {
    let is_broken = |gate: &&GateResult| gate.demand == Demand::Findings && gate.verdict == Verdict::Regression;
    results.gates.iter().filter(is_broken).map(|gate| gate.cell.as_str()).collect()
}

/// Judges `cell`; `is_denied` tells that a gate denies a finding of its tool.
pub(super) fn state(cell: &CellResult, is_denied: bool) -> CellState {
    if cell.failures.iter().any(|failure| cases::account_of(failure).0 == Account::Failed) {
        return CellState::Failed;
    }
    match &cell.attach {
        Attach::Refused { expected: false, .. } => return CellState::Refused,
        Attach::Unsteady { .. } => return CellState::Unsteady,
        Attach::Attached { in_spite_of: Some(_), .. } => return CellState::Unexpected,
        _ => {}
    }
    match cell.runs.measured.saturating_add(cell.runs.refused) {
        0 => return CellState::NotMeasured,
        done if done < cell.runs.planned => return CellState::Partly,
        _ => {}
    }
    match cell.without_figures() {
        Some((runs, _)) if runs == cell.runs.measured => return CellState::NotMeasured,
        Some(_) => return CellState::Partly,
        None => {}
    }
    match &cell.attach {
        Attach::Refused { .. } => CellState::RefusedAsExpected,
        Attach::Unknown { .. } => CellState::NotMeasured,
        Attach::Baseline if cell.is_baseline() => CellState::Measured,
        _ if cell.tool.is_some() => of_tool(cell, is_denied),
        _ => of_counts(cell),
    }
}

/// Judges a cell regardless of what gates deny.
pub(super) fn state_of(cell: &CellResult) -> CellState {
    state(cell, false)
}

fn of_tool(cell: &CellResult, is_denied: bool) -> CellState {
    if is_denied {
        return CellState::Denied;
    }
    if cases::found(cell).next().is_some() {
        return CellState::Found;
    }
    let mut findings = cell.tool_result.iter().flat_map(|result| &result.findings);
    let is_clear = findings.any(|finding| finding.status == FindingStatus::Clear);
    let is_whole = cell.tool_result.iter().all(|result| result.not_compared.is_empty());
    let mut figures = cell.tool_result.iter().flat_map(|result| &result.figures);
    let is_exact = figures.all(|figure| figure.differs.is_some() || figure.is_exact());
    match (is_clear, is_whole, is_exact) {
        (true, true, true) => CellState::NothingFound,
        (true, true, false) => CellState::WithinBounds,
        (true, false, _) => CellState::NothingFoundInPart,
        (false, ..) => CellState::Measured,
    }
}

/// The largest number of named figures.
const MOST_FIGURES: usize = 4;

/// Names the figures of tools that nothing could compare, so that nothing was found in them: ``not
/// compared: `reads` (read, calls)``.
pub(super) fn not_compared<'a>(cells: impl Iterator<Item = &'a CellResult>) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for one in cells.flat_map(|cell| &cell.tool_result).flat_map(|result| &result.not_compared) {
        if !names.contains(&one.figure.as_str()) {
            names.push(&one.figure);
        }
    }
    let more = names.len().saturating_sub(MOST_FIGURES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named = names.into_iter().take(MOST_FIGURES).collect::<Vec<_>>().join(", ");
    (!named.is_empty()).then(|| format!("not compared: {named}{more}"))
}

/// Warns that races between CPUs are not evaluated, if programs count on several CPUs under the
/// instruction clock, where CPUs take turns.
pub(super) fn races(results: &Results) -> Option<String> {
    let study = &results.plan.study;
    let cpus = study.guest.cpus;
    let counts = results.cells.iter().any(|cell| !cell.is_baseline() && cell.runs.measured > 0);
    (study.clock == Clock::Instructions && cpus > 1 && counts && !study.guest.short_turns)
        .then(|| format!("races between its {cpus} CPUs are not evaluated: under this clock they take turns"))
}

/// Judges the counts. A cell is exact only if every interval was compared and has every byte, and
/// every call if calls can be compared. If bytes were compared in some intervals only, it is partly
/// measured.
fn of_counts(cell: &CellResult) -> CellState {
    let is_off = |errors: &ByteErrors| errors.min != 0 || errors.max != 0;
    let counts = || cell.accuracy.iter().flat_map(|accuracy| [&accuracy.byte_error, &accuracy.call_error]);
    if counts().filter_map(Figure::value).any(is_off) {
        return CellState::NotExact;
    }
    let bytes = || cell.accuracy.iter().map(|accuracy| accuracy.byte_error.value());
    match () {
        () if cell.lacks_counts() => CellState::Partly,
        () if cell.accuracy.is_empty() || bytes().any(|errors| errors.is_none()) => CellState::Measured,
        () => CellState::Exact,
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats whether what is under test attached, for one cell of a table.

use std::collections::BTreeMap;

use super::table::Remarks;
use crate::labels;
use bpfassay_results::{Attach, CellFailure, CellResult, FailureKind};

/// Formats the outcome: `attached`, `refused, as expected: attach: errno 524 [1]`. Long texts
/// become remarks.
pub(super) fn attach(cell: &CellResult, remarks: &mut Remarks) -> String {
    let mut parts = vec![outcome(cell, remarks)];
    parts.extend(failures(cell, remarks));
    let done = cell.runs.measured.saturating_add(cell.runs.refused).saturating_add(cell.runs.failed);
    if done > 0 && done < cell.runs.planned {
        parts.push(format!("{done} of {} runs done", cell.runs.planned));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

/// Formats the outcome of the runs that did not fail; empty if all failed.
fn outcome(cell: &CellResult, remarks: &mut Remarks) -> String {
    match &cell.attach {
        Attach::Baseline if cell.runs.measured > 0 => "baseline".to_owned(),
        Attach::Baseline if cell.failures.is_empty() => "baseline, not run".to_owned(),
        Attach::Baseline => "baseline".to_owned(),
        Attach::Attached { functions, in_spite_of } => {
            let displaced: Vec<&str> = functions.iter().map(String::as_str).filter(|name| name.contains('+')).collect();
            let mut text = match (cell.not_seen_to_load(), cell.left_to_a_loader()) {
                (Some(reason), _) => format!("started, not seen to load {}", remarks.mark(reason.to_owned())),
                (None, Some(reason)) => format!("loaded, not all attached {}", remarks.mark(reason.to_owned())),
                (None, None) => "attached".to_owned(),
            };
            match displaced.len() {
                0 => {}
                // A longer list makes the table too wide to read.
                1 | 2 => text = format!("{text} at {}", displaced.join(", ")),
                _ => text = format!("{text} {}", remarks.mark(format!("behind the entry: {}", displaced.join(", ")))),
            }
            if let Some(expectation) = in_spite_of {
                let remark = format!(
                    "attached though errno {} was expected ({}): the expectation is out of date",
                    expectation.errno, expectation.reason
                );
                text = format!("{text}, unexpectedly {}", remarks.mark(remark));
            }
            text
        }
        Attach::Refused { refusal, expectation: Some(expectation), expected: true } => {
            let remark = format!("{}; expected: {} ({})", refusal.message, expectation.reason, expectation.source);
            format!("refused, as expected: {} {}", labels::refusal(refusal), remarks.mark(remark))
        }
        Attach::Refused { refusal, expectation, .. } => {
            let mut remark = labels::printed(refusal);
            if let Some(line) = &refusal.verifier {
                remark = format!("{remark}; verifier: {}", bpfassay_tool::helper::named(line));
            }
            if let Some(expectation) = expectation {
                remark = format!("{remark}; expected was errno {}", expectation.errno);
            }
            let what = if labels::is_step_known(refusal) { "REFUSED" } else { "NOT READY" };
            format!("{what}: {} {}", labels::refusal(refusal), remarks.mark(remark))
        }
        Attach::Unsteady { attached, refused, refusal } => {
            let mark = remarks.mark(refusal.message.clone());
            format!("UNSTEADY: attached in {attached}, refused in {refused} runs: {} {mark}", labels::refusal(refusal))
        }
        Attach::Unknown { .. } if cell.failures.is_empty() => "not run".to_owned(),
        Attach::Unknown { .. } => String::new(),
    }
}

/// Formats the kinds of failures, each with the marks of its runs.
fn failures(cell: &CellResult, remarks: &mut Remarks) -> Vec<String> {
    let mut by_kind = BTreeMap::<FailureKind, Vec<String>>::new();
    for CellFailure { run, failure } in &cell.failures {
        let mark = remarks.mark_failure(&cell.target, run, failure);
        let marks = by_kind.entry(failure.kind).or_default();
        if !marks.contains(&mark) {
            marks.push(mark);
        }
    }
    let formatted = by_kind.into_iter().map(|(kind, marks)| match kind {
        // The tool caused neither of these.
        FailureKind::Host | FailureKind::NotTried => format!("not measured: {} {}", kind.name(), marks.join(" ")),
        _ => format!("FAILED: {} {}", kind.name(), marks.join(" ")),
    });
    formatted.collect()
}

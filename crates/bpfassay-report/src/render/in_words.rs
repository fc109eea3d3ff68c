// SPDX-License-Identifier: MIT OR Apache-2.0
//! What replacing one tool by another one changes, in a sentence for each cell.

use bpfassay_stats::gate_decision::Change;

use crate::compare::{CellComparison, Comparison, DirectChange, Fate, FunctionChange};
use bpfassay_results::Role;

/// Most functions that a sentence names, and the share of the difference that each must exceed.
const NAMED: usize = 2;
const SHARE: f64 = 0.1;

/// Returns a sentence for each cell of two tools.
pub(super) fn sentences(comparison: &Comparison) -> Vec<String> {
    comparison.cells.iter().filter_map(sentence).collect()
}

fn sentence(cell: &CellComparison) -> Option<String> {
    let (base, new) = cell.under_test.split_once(" → ")?;
    let clauses = match &cell.fate {
        Fate::Broken { reason } => vec![format!("does not load, unlike `{base}`: {reason}")],
        Fate::Mended { reason } => vec![format!("loads, unlike `{base}`: {reason}")],
        Fate::Neither { .. } => vec!["does not load either".to_owned()],
        Fate::New | Fate::Gone => return None,
        Fate::Compared => compared(cell),
    };
    Some(format!("{}, {}: `{new}` {}", cell.target(), cell.case, clauses.join("; ")))
}

fn compared(cell: &CellComparison) -> Vec<String> {
    let costs = cell.metrics.iter().filter_map(|metric| {
        let direct = metric.direct.as_ref()?.value()?;
        Some((call(&metric.metric), direct))
    });
    let costs: Vec<(&str, &DirectChange)> = costs.collect();
    let of = |change: Change| -> Vec<&str> {
        costs.iter().filter(|(_, direct)| direct.change == change).map(|(call, _)| *call).collect()
    };
    let mut clauses: Vec<String> = costs.iter().filter_map(|(call, direct)| difference(direct, call)).collect();
    for (change, text) in [
        (Change::Equivalent, "costs as many instructions per"),
        (Change::Inconclusive, "shows no difference, and no equality, of instructions per"),
    ] {
        let calls = of(change);
        if !calls.is_empty() {
            clauses.push(format!("{text} {}", calls.join(" and ")));
        }
    }
    for (text, names) in [
        ("has the findings", [&*cell.faults_new, &cell.findings_new].concat()),
        ("lacks the findings", [&*cell.faults_gone, &cell.findings_gone].concat()),
    ] {
        if !names.is_empty() {
            clauses.push(format!("{text} {}", names.join(", ")));
        }
    }
    if clauses.is_empty() { vec!["has no costs and no other findings to compare".to_owned()] } else { clauses }
}

/// Microbenchmarks have one metric, `work`, of their operations.
fn call(metric: &str) -> &str {
    if metric == bpfassay_protocol::job::WORK { "operation" } else { metric }
}

/// Describes a difference of direct costs per `call`, with the functions that make most of it;
/// `None` if there is no difference.
fn difference(direct: &DirectChange, call: &str) -> Option<String> {
    let word = match direct.change {
        Change::Increase => "more",
        Change::Decrease => "fewer",
        Change::Equivalent | Change::Inconclusive => return None,
    };
    // Two tools have other programs in any case.
    let is_named = |function: &&FunctionChange| {
        function.role != Role::Program && function.difference().abs() > direct.difference().abs() * SHARE
    };
    let functions = direct.functions.iter().filter(is_named);
    let of = |function: &FunctionChange| match function.per_call {
        [0.0, _] => format!("{} is new", function.function),
        [_, 0.0] => format!("{} is no longer called", function.function),
        _ => format!("{} {:+.0}", function.function, function.difference()),
    };
    let named: Vec<String> = functions.take(NAMED).map(of).collect();
    let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    Some(format!("costs {:.0} instructions {word} per {call}{named}", direct.difference().abs()))
}

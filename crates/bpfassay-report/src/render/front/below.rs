// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines below the matrix: capabilities and costs of tools, baselines that failed, warnings,
//! gates.

use std::collections::BTreeMap;

use bpfassay_stats::Verdict;
use bpfassay_tool::needed_capabilities::needs_in_words;

use super::{
    super::{
        in_words::sentences,
        kernel_features,
        plain::excerpt,
        result_summary::{CellState, state_of},
        study,
        table::{CellNames, Remarks},
        tool_bill,
    },
    FrontPlace,
    cell::{direct, first_failure},
};
use crate::{
    compare::{Question, compare},
    labels,
};
use bpfassay_results::{CellResult, GateResult, Results};

/// The largest number of tools with a line of direct costs.
const MOST_TOOLS: usize = 4;
/// The largest number of lines of each kind of warning.
const MOST: usize = 5;
/// The largest number of targets for which two tools are compared in a sentence.
const MOST_TARGETS: usize = 10;
/// The longest warning, in characters.
const LONGEST: usize = 200;

/// Returns the first lines, shortened if they are long, and how many more there are.
fn limited(lines: impl ExactSizeIterator<Item = String>, most: usize, what: &str, place: &FrontPlace) -> Vec<String> {
    let more = lines.len().saturating_sub(most);
    let shown = lines.take(most).map(|line| excerpt(&line, LONGEST));
    shown.chain(more_of(more, what, place)).collect()
}

/// Tells how many more there are; `None` for none.
pub(super) fn more_of(more: usize, what: &str, place: &FrontPlace) -> Option<String> {
    (more > 0).then(|| format!("… and {more} more {what}: {}", place.rest))
}

/// Instructions per call of one metric, from the smallest to the largest cell of a tool.
struct CostRange {
    tool: String,
    metric: String,
    low: f64,
    high: f64,
}

impl CostRange {
    /// Formats the cost: `write 529 to 3958`.
    fn words(&self) -> String {
        match (instructions(self.low), instructions(self.high)) {
            (low, high) if low == high => format!("{} {low}", self.metric),
            (low, high) => format!("{} {low} to {high}", self.metric),
        }
    }
}

/// Formats instructions per call, without decimals unless 0 would stand for fewer than one.
fn instructions(per_call: f64) -> String {
    match per_call {
        0.0 | 0.5.. => format!("{per_call:.0}"),
        _ => format!("{per_call:.2}"),
    }
}

/// Lists what each tool costs apart from its calls, one line each.
fn bills(results: &Results, place: &FrontPlace) -> Vec<String> {
    let line = |(tool, cells): (&str, Vec<&CellResult>)| {
        tool_bill::in_words(results, &cells).map(|words| format!("{tool}: {words}"))
    };
    let lines: Vec<String> = tool_bill::cells_by_tool(results).into_iter().filter_map(line).collect();
    limited(lines.into_iter(), MOST_TOOLS, "bills of tools", place)
}

/// Lists instructions on the path of each tool, one line each.
fn direct_costs(results: &Results, place: &FrontPlace) -> Vec<String> {
    let mut costs: Vec<CostRange> = Vec::new();
    for cell in &results.cells {
        let of_metrics = cell.whole().map(|(metric, _)| (metric.name.to_string(), metric.direct.as_ref()));
        let of_bystander = cell.bystander.iter().map(|cost| ("bystander".to_owned(), Some(&cost.direct)));
        for (metric, counted) in of_metrics.chain(of_bystander) {
            let Some((low, high)) = direct(counted) else { continue };
            let tool = cell.under_test();
            match costs.iter_mut().find(|cost| (&cost.tool, &cost.metric) == (&tool, &metric)) {
                Some(cost) => (cost.low, cost.high) = (cost.low.min(low), cost.high.max(high)),
                None => costs.push(CostRange { tool, metric, low, high }),
            }
        }
    }
    costs.sort_by_cached_key(|cost| place_of(results, &cost.tool));
    let of_tools: Vec<&[CostRange]> = costs.chunk_by(|one, next| one.tool == next.tool).collect();
    let line = |costs: &[CostRange]| {
        let words: Vec<String> = costs.iter().map(CostRange::words).collect();
        format!("instructions per call by {}: {}", costs.first().map_or("", |cost| &cost.tool), words.join(", "))
    };
    limited(of_tools.into_iter().map(line), MOST_TOOLS, "direct costs", place)
}

/// Lists what is known of each tool besides the matrix.
pub(super) fn of_tools(results: &Results, place: &FrontPlace) -> Vec<String> {
    [capabilities(results, place), direct_costs(results, place), bills(results, place), of_two_tools(results, place)]
        .concat()
}

/// Says what replacing the first of two tools by the second one changes, in a sentence for each
/// target.
fn of_two_tools(results: &Results, place: &FrontPlace) -> Vec<String> {
    let [old, new] = results.plan.study.tool_files.as_slice() else { return Vec::new() };
    let tools = vec![(old.file.name.clone(), new.file.name.clone())];
    // Results without a cell of both cannot be compared.
    let comparison = compare(results, results, &Question { tools, ..Question::default() });
    let sentences = comparison.map(|comparison| sentences(&comparison)).unwrap_or_default();
    limited(sentences.into_iter(), MOST_TARGETS, "targets", place)
}

/// Lists the capabilities with which each tool starts, one line for all targets with the same.
fn capabilities(results: &Results, place: &FrontPlace) -> Vec<String> {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for cell in &results.cells {
        let Some(search) = cell.capabilities() else { continue };
        let line = format!("{} {}", cell.under_test(), needs_in_words(search));
        let target = cell.target.to_string();
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, targets)) => targets.push(target),
            None => lines.push((line, vec![target])),
        }
    }
    let lines = lines.into_iter().map(|(line, targets)| format!("{line} ({})", targets.join(", ")));
    limited(lines.collect::<Vec<_>>().into_iter(), MOST_TOOLS * 2, "needs of tools", place)
}

/// Returns the position of `tool` in the order of the study.
fn place_of(results: &Results, tool: &str) -> Option<usize> {
    results.cells.iter().position(|cell| cell.under_test() == tool)
}

/// Lists baselines that were not measured completely.
pub(super) fn baselines(results: &Results, remarks: &mut Remarks, place: &FrontPlace) -> Vec<String> {
    let cell_names = CellNames::of(results);
    let mut lines = Vec::new();
    for cell in results.cells.iter().filter(|cell| cell.is_baseline()) {
        let state = state_of(cell);
        if state == CellState::Measured && cell.failures.is_empty() {
            continue;
        }
        let mark = first_failure(cell, remarks).map(|mark| format!(" {mark}")).unwrap_or_default();
        lines.push(format!("baseline of {}: {}{mark}", cell_names.place(cell), state.words()));
    }
    limited(lines.into_iter(), MOST, "baselines that were not measured", place)
}

/// Lists warnings about the figures, each once.
pub(super) fn warnings(results: &Results, place: &FrontPlace) -> Vec<String> {
    let surprises = kernel_features::page(results).map(|page| page.surprises).unwrap_or_default();
    let of_all = [study::warnings_but_of_instructions(results), surprises].concat();
    let doubts = together(&study::doubts(results));
    [of_all, doubts].map(|lines| limited(lines.into_iter(), MOST, "such lines", place)).concat()
}

/// Combines `doubts` that differ only in the place and in numbers into one line: the first, and how
/// many more there are.
fn together(doubts: &[String]) -> Vec<String> {
    let mut order: Vec<(&str, &str, usize)> = Vec::new();
    let mut known = BTreeMap::<String, usize>::new();
    for doubt in doubts {
        let (place, what) = doubt.split_once(": ").unwrap_or(("", doubt));
        let key = what.chars().filter(|c| !c.is_ascii_digit()).collect();
        let at = *known.entry(key).or_insert(order.len());
        match order.get_mut(at) {
            Some((.., more)) => *more += 1,
            None => order.push((place, what, 0)),
        }
    }
    let line = |(place, what, more): (&str, &str, usize)| match more {
        0 => format!("{place}: {what}"),
        more => format!("{place} and {more} more: {what}"),
    };
    order.into_iter().map(line).collect()
}

/// Lists each demand of each gate, with the first cells that do not pass.
pub(super) fn gates(results: &Results, place: &FrontPlace) -> Vec<String> {
    let mut demands: Vec<(u32, String, Vec<&GateResult>)> = Vec::new();
    for gate in &results.gates {
        let demand = gate.demand.to_string();
        match demands.iter_mut().find(|(number, known, _)| *number == gate.gate && *known == demand) {
            Some((.., all)) => all.push(gate),
            None => demands.push((gate.gate, demand, vec![gate])),
        }
    }
    let lines = demands.iter().flat_map(|(number, demand, all)| {
        let count = |verdict: Verdict| all.iter().filter(|gate| gate.verdict == verdict).count();
        let verdicts: Vec<String> = [Verdict::Regression, Verdict::Inconclusive, Verdict::Pass]
            .into_iter()
            .filter(|verdict| count(*verdict) > 0)
            .map(|verdict| format!("{} {}", count(verdict), labels::verdict(verdict)))
            .collect();
        let line = format!("gate {}, {demand}: {}", number.saturating_add(1), verdicts.join(", "));
        std::iter::once(line).chain(broken(results, all, place))
    });
    lines.collect()
}

/// Lists the cells of one demand that do not pass.
fn broken(results: &Results, gates: &[&GateResult], place: &FrontPlace) -> Vec<String> {
    let mut all: Vec<&&GateResult> = gates.iter().filter(|gate| gate.verdict != Verdict::Pass).collect();
    all.sort_by_key(|gate| gate.verdict != Verdict::Regression);
    let cell_names = CellNames::of(results);
    let name = |cell: &CellResult| format!("{} {}", cell_names.place(cell), cell.under_test());
    let line = |gate: &&GateResult| {
        let cell = results.cells.iter().find(|cell| cell.cell == gate.cell);
        let metric = gate.metric.map(|metric| format!(", {metric}")).unwrap_or_default();
        let place = cell.map_or_else(|| gate.cell.clone(), name);
        format!("  {}: {place}{metric}: {}", labels::verdict(gate.verdict), gate.found)
    };
    limited(all.into_iter().map(line), MOST, "that do not pass", place)
}

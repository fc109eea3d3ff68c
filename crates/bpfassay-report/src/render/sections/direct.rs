// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of direct costs: what each probe configuration adds to each call on its own path, by
//! role.

use super::cost::CostNotes;
use crate::{
    labels::{self, NONE},
    render::table::{CellNames, Remarks, TextTable},
};
use bpfassay_results::{CellResult, Cost, Direct, Figure, Results, Role, plain};

pub(super) fn table(results: &Results) -> Option<TextTable> {
    let cell_names = CellNames::of(results);
    let mut remarks = Remarks::default();
    let (mut rows, mut unresolved, mut notes) = (Vec::new(), 0.0_f64, CostNotes::default());
    let (has_tool, is_unknown) = of_tools(results);
    let mut has_bystander = false;
    for cell in &results.cells {
        let counted = cell.metrics.iter().filter_map(|metric| Some((metric, metric.direct.as_ref()?)));
        let of_metrics = counted.map(|(metric, direct)| (&metric.name, direct, &metric.cost));
        let of_bystander = cell.bystander.iter().map(|cost| (&cost.name, &cost.direct, &cost.cost));
        has_bystander |= !cell.bystander.is_empty();
        for (index, (name, direct, cost)) in of_metrics.chain(of_bystander).enumerate() {
            let mut row = cell_names.row(cell, index == 0);
            row.push(name.to_string());
            row.extend(figures((direct, cost), has_tool, &mut remarks, &mut notes));
            unresolved = unresolved.max(direct.value().map_or(0.0, |direct| direct.unresolved));
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mut legend = vec![
        "direct: instructions on the probe's path, counted one by one; smallest..largest over the runs. program, trampoline (with ftrace and \
         kprobes), helpers (with maps), entry (locking and bookkeeping around programs): its parts."
            .to_owned(),
        "elsewhere: what the rest of the guest executed beyond the baseline's run of the same round; it varies by itself, as the A/A rows of the cost \
         show. whole: the difference of the whole guest, which is direct and elsewhere together, with its interval. Instructions, not cycles."
            .to_owned(),
    ];
    if has_bystander {
        legend.push(
            "bystander-write, bystander-read: per call of a process on another file system and in another cgroup, which no tool is meant to trace."
                .to_owned(),
        );
    }
    if has_tool {
        legend.push(
            "tool: of elsewhere, what the tool's processes executed in user space meanwhile: what reads its buffers or its maps. What the kernel does \
             for them is not in it."
                .to_owned(),
        );
    }
    if let Some(reason) = is_unknown {
        legend.push(format!(
            "What a tool's processes executed in user space meanwhile is not measured in some rows (`tool` in results.json): {}.",
            plain::line(&reason)
        ));
    }
    legend.extend(notes.legend());
    if unresolved >= 0.05 {
        legend.push(format!(
            "Up to {unresolved:.1} instructions per call are at addresses that no function has, in none of these columns but elsewhere: \
             `unresolved` in results.json."
        ));
    }
    let mut columns = vec!["metric", "direct", "program", "trampoline", "helpers", "entry", "elsewhere"];
    columns.extend(has_tool.then_some("tool"));
    columns.push("whole [95 %]");
    let columns = cell_names.columns(&columns);
    let title = format!("direct cost in instructions per call, study {}", results.plan.title());
    Some(TextTable { rows, remarks: remarks.0, legend, ..TextTable::new(title, columns) })
}

/// Formats the direct cost, its parts, what was executed elsewhere, also by the tool, and the whole
/// cost.
fn figures(
    (direct, cost): (&Figure<Direct>, &Figure<Cost>),
    has_tool: bool,
    remarks: &mut Remarks,
    notes: &mut CostNotes,
) -> Vec<String> {
    let direct = match direct {
        Figure::Value(direct) => direct,
        Figure::NotMeasured(reason) => {
            let mut row = vec![remarks.missing(reason)];
            row.extend(vec![NONE.to_owned(); Role::ALL.len() + 2 + usize::from(has_tool)]);
            return row;
        }
    };
    let mut row = vec![labels::direct(direct)];
    row.extend(Role::ALL.map(|role| format!("{:.1}", direct.of(role))));
    row.push(format!("{:+.1}", direct.elsewhere.mean));
    if has_tool {
        let tool = direct.tool.as_ref().and_then(Figure::value);
        row.push(tool.map_or_else(|| NONE.to_owned(), |tool| format!("{:.1}", tool.mean)));
    }
    row.push(match cost {
        Figure::Value(cost) => notes.shown(cost),
        Figure::NotMeasured(reason) => remarks.missing(reason),
    });
    row
}

/// Returns whether tools' processes executed anything in user space during the phases, and why that
/// is not known for some.
fn of_tools<'a>(results: &'a Results) -> (bool, Option<String>) {
    let of_cell = |cell: &'a CellResult| {
        let of_metrics = cell.metrics.iter().filter_map(|metric| metric.direct.as_ref());
        of_metrics.chain(cell.bystander.iter().map(|cost| &cost.direct))
    };
    let all = results.cells.iter().flat_map(of_cell);
    let found: Vec<_> = all.filter_map(|direct| direct.value()?.tool.as_ref()).collect();
    let has_any = found.iter().any(|tool| tool.value().is_some_and(|tool| tool.max >= 0.05));
    (has_any, found.iter().find_map(|tool| Some(tool.reason()?.to_string())))
}

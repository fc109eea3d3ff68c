// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bill of each tool: all that it costs, target by target, on one page.

use crate::render::{
    table::{CellNames, Remarks, TextTable},
    tool_bill::{self, Bill},
};
use bpfassay_results::{CellResult, Figure, Results};

const COLUMNS: [&str; 10] = [
    "target",
    "traced call",
    "untraced call",
    "idle CPU",
    "per event",
    "maps",
    "programs",
    "process",
    "attach",
    "detach",
];

/// Creates a table for each tool from a tool file that a workload ran beside.
pub(super) fn tables(results: &Results) -> Vec<TextTable> {
    let tools = tool_bill::cells_by_tool(results).into_iter();
    let mut tables: Vec<TextTable> = tools.filter_map(|(tool, cells)| table(results, tool, cells)).collect();
    if let Some(last) = tables.last_mut() {
        last.legend = legend();
    }
    tables
}

fn table(results: &Results, tool: &str, cells: Vec<&CellResult>) -> Option<TextTable> {
    let cell_names = CellNames::of(results);
    let mut remarks = Remarks::default();
    let bills = cells.into_iter().filter_map(|cell| Some((cell, tool_bill::of(results, cell)?)));
    let rows: Vec<_> = bills.map(|(cell, bill)| row(cell_names, cell, bill, &mut remarks)).collect();
    let table = TextTable::new(format!("bill of {tool}"), COLUMNS);
    (!rows.is_empty()).then_some(TextTable { rows, remarks: remarks.0, ..table })
}

fn legend() -> Vec<String> {
    vec![
        "traced call, untraced call: instructions on the tool's path per call of the workload, and per call of its bystander, a process on another file \
         system and in another cgroup. idle CPU: CPU time of the tool's processes while the guest is idle, as a share of one CPU. per event: their CPU time \
         for each event that they report."
            .to_owned(),
        "maps, programs: memory that the kernel accounts to them. process: resident memory of the tool's processes. attach: from its start until it was \
         ready. detach: from the signal until it had ended. By the guest's clock, in the first measured run."
            .to_owned(),
    ]
}

fn row(cell_names: CellNames, cell: &CellResult, bill: Bill, remarks: &mut Remarks) -> Vec<String> {
    let mut row = vec![cell_names.place(cell)];
    let mut add = |figure: Figure<String>| match figure {
        Figure::Value(text) => row.push(text),
        Figure::NotMeasured(reason) => row.push(remarks.missing(&reason)),
    };
    let Bill { traced, untraced, idle, per_event_ns, memory, times_ns } = bill;
    add(traced);
    add(untraced);
    add(idle.map(tool_bill::share));
    add(per_event_ns.map(|ns| format!("{:.1} µs", ns / 1000.0)));
    memory.into_iter().for_each(|bytes| add(bytes.map(tool_bill::size)));
    times_ns.into_iter().for_each(|time| add(time.map(tool_bill::time)));
    row
}

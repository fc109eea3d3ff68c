// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of overheads against the number of program sets: a row per configuration, a column per
//! workload and metric.

use std::collections::{HashMap, HashSet};

use bpfassay_protocol::program_set::ProgramSets;
use bpfassay_study::MetricName;

use crate::{
    labels::{self, NONE},
    render::table::TextTable,
};
use bpfassay_results::{CellResult, Results};

/// Creates the table, if program sets were attached.
pub(super) fn table(results: &Results) -> Option<TextTable> {
    let cells: Vec<&CellResult> = results.cells.iter().filter(|cell| cell.probe.sets != ProgramSets::NONE).collect();
    let mut columns: Vec<(&str, &str, MetricName)> = Vec::new();
    let mut places = Vec::new();
    let (mut known_columns, mut known_places) = (HashSet::new(), HashSet::new());
    // The first cell of a kind counts.
    let mut first = HashMap::new();
    for cell in &cells {
        for metric in &cell.metrics {
            let column = (cell.case.as_str(), cell.file_system.as_str(), metric.name);
            if known_columns.insert(column) {
                columns.push(column);
            }
        }
        let place = (&cell.target, cell.probe);
        if known_places.insert(place) {
            places.push(place);
        }
        first.entry((place, cell.case.as_str(), cell.file_system.as_str())).or_insert(*cell);
    }
    // Rows are ordered by target as in the plan, and by number of sets.
    let order: HashMap<_, usize> = results.plan.targets().into_iter().zip(0..).collect();
    places.sort_by_key(|(target, probe)| (order.get(target).copied(), probe.sets.count()));
    let rows = places.iter().map(|&(target, probe)| {
        let figures = columns.iter().map(|&(case, file_system, metric)| {
            let found = first.get(&((target, probe), case, file_system));
            let found = found.and_then(|cell| cell.metric(&metric));
            found.and_then(|metric| labels::overhead(metric, false)).unwrap_or_else(|| NONE.to_owned())
        });
        [target.to_string(), probe.sets.count().to_string(), probe.sets.to_string()]
            .into_iter()
            .chain(figures)
            .collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let many = columns.iter().any(|(_, file_system, _)| *file_system != columns[0].1);
    let head = columns.iter().map(|(case, file_system, metric)| match many {
        true => format!("{case} {metric}, {file_system}"),
        false => format!("{case} {metric}"),
    });
    let columns = ["target", "sets", "which"].map(str::to_owned).into_iter().chain(head);
    (!rows.is_empty()).then(|| TextTable { rows, ..TextTable::new("overhead by number of program sets", columns) })
}

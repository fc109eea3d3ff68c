// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of the workload `io-paths`: what each probe configuration counted of each path. Targets
//! with the same figures share one table.

use std::collections::BTreeMap;

use bpfassay_protocol::{
    IoPath, Operation,
    io_path::{Amount, Expected},
    operation::Direction,
    probe::ByteMeaning,
};
use bpfassay_study::{Target, WorkloadSpec};

use crate::{
    derive::lookup::{ByCell, by_cell},
    labels::NONE,
    render::{
        attach::attach,
        study,
        table::{Remarks, TextTable, target_list},
    },
};
use bpfassay_results::{CellResult, Figure, PathCoverage, Results};

/// Workload case, file system, bytes per path.
type IoPathKey<'a> = (&'a str, &'a str, u64);

type OfTarget<'a> = (&'a Target, Vec<&'a CellResult>);

/// Creates one table per workload, file system, and group of targets with the same figures.
pub(super) fn tables(results: &Results) -> Vec<TextTable> {
    // Cells by case and file system, then by target, in the order of the plan.
    let mut groups: Vec<(IoPathKey<'_>, Vec<OfTarget<'_>>)> = Vec::new();
    for (cell, planned) in results.cells.iter().zip(results.plan.measured_cells()) {
        let workload = results.plan.study.workload(&planned.case);
        let Some(size) = workload.and_then(WorkloadSpec::bytes_per_path) else { continue };
        let key = (cell.case.as_str(), cell.file_system.as_str(), size);
        let index = groups.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        let targets = &mut groups[index].1;
        match targets.iter_mut().find(|(target, _)| *target == &cell.target) {
            Some((_, cells)) => cells.push(cell),
            None => targets.push((&cell.target, vec![cell])),
        }
    }
    let runs = if groups.is_empty() { ByCell::new() } else { by_cell(&results.runs) };
    let mut tables = Vec::new();
    for ((case, file_system, size), targets) in groups {
        let mut shown: Vec<(Vec<&Target>, TextTable)> = Vec::new();
        for (target, cells) in targets {
            let table = table(&runs, &cells);
            match shown.iter_mut().find(|(_, known)| is_same(known, &table)) {
                Some((targets, _)) => targets.push(target),
                None => shown.push((vec![target], table)),
            }
        }
        for (targets, mut table) in shown {
            table.title = vec![format!("{case}, {size} bytes by each path, {file_system}: {}", target_list(&targets))];
            tables.push(table);
        }
    }
    let stands_first = !study::has_figures(results);
    if let Some(first) = tables.first_mut() {
        first.anchor = Some("paths");
        if stands_first {
            first.title.insert(0, study::title(results));
        }
    }
    if let Some(last) = tables.last_mut() {
        last.legend = legend();
        if stands_first {
            last.warnings = study::warnings_with_doubts(results);
        }
    }
    tables
}

fn is_same(one: &TextTable, other: &TextTable) -> bool {
    (&one.columns, &one.rows, &one.remarks) == (&other.columns, &other.rows, &other.remarks)
}

fn table(runs: &ByCell<'_>, cells: &[&CellResult]) -> TextTable {
    let traced: Vec<&CellResult> = cells.iter().copied().filter(|cell| !cell.probe.is_baseline()).collect();
    let shown = if traced.is_empty() { cells.to_vec() } else { traced };
    let mut remarks = Remarks::default();
    let configurations = shown.iter().map(|cell| cell.under_test());
    let columns: Vec<String> = ["path", "moves"].map(str::to_owned).into_iter().chain(configurations).collect();
    let mut head = vec!["(attach)".to_owned(), String::new()];
    head.extend(shown.iter().map(|cell| attach(cell, &mut remarks)));
    let mut rows = vec![head];
    let coverage: Vec<BTreeMap<(IoPath, Operation), Vec<&PathCoverage>>> =
        shown.iter().map(|cell| of_cell(runs, cell)).collect();
    for &path in IoPath::ALL {
        for (index, expected) in path.expected().iter().enumerate() {
            let mut row = vec![if index == 0 { path.name().to_owned() } else { String::new() }, moves(expected)];
            for (cell, coverage) in shown.iter().zip(&coverage) {
                let seen = coverage.get(&(path, expected.operation)).map_or(&[][..], Vec::as_slice);
                row.push(shown_as(cell, expected, seen));
            }
            rows.push(row);
        }
    }
    TextTable { rows, remarks: remarks.0, class, ..TextTable::new("", columns) }
}

fn of_cell<'a>(runs: &ByCell<'a>, cell: &CellResult) -> BTreeMap<(IoPath, Operation), Vec<&'a PathCoverage>> {
    let mut found = BTreeMap::<_, Vec<_>>::new();
    let runs = runs.get(cell.cell.as_str()).into_iter().flatten().filter(|run| !run.record.control);
    for row in runs.filter_map(|run| run.derived.as_ref()).flat_map(|derived| &derived.coverage) {
        found.entry((row.path, row.operation)).or_default().push(row);
    }
    found
}

/// Formats what a path moves under an operation.
fn moves(expected: &Expected) -> String {
    let way = match expected.operation.direction() {
        Some(Direction::In) => "in",
        Some(Direction::Out) => "out",
        None => expected.operation.name(),
    };
    match expected.amount {
        Amount::Whole => format!("all {way}"),
        Amount::Pages => format!("all {way}, pages"),
        Amount::Nothing if expected.operation.direction().is_some() => format!("nothing {way}"),
        Amount::Nothing => format!("{way} calls"),
        Amount::Errors => format!("failed {way} calls"),
        Amount::NoCall => "nothing".to_owned(),
    }
}

/// Formats what the runs of a cell counted, each text once.
fn shown_as(cell: &CellResult, expected: &Expected, seen: &[&PathCoverage]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for row in seen {
        let text = one(cell, expected, row);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.is_empty() {
        true => NONE.to_owned(),
        false => texts.join(" or "),
    }
}

fn one(cell: &CellResult, expected: &Expected, row: &PathCoverage) -> String {
    if let Some(refused) = &row.refused {
        return format!("not done: errno {}", refused.errno);
    }
    let (Figure::Value(difference), Figure::Value(traced), Figure::Value(moved)) =
        (&row.difference, &row.traced, &row.moved)
    else {
        return if cell.probe.is_baseline() { "done".to_owned() } else { NONE.to_owned() };
    };
    if (traced.calls, traced.bytes) == (0, 0) {
        return if expected.amount == Amount::NoCall { "nothing".to_owned() } else { "none".to_owned() };
    }
    let mut text = match difference.bytes {
        0 if moved.bytes == 0 && traced.calls < moved.calls => format!("{} of {} calls", traced.calls, moved.calls),
        0 => "all".to_owned(),
        short if short < 0 => format!("{} of {} bytes", traced.bytes, moved.bytes),
        more => format!("{more:+} bytes"),
    };
    match difference.calls {
        Some(calls) if calls != 0 && (moved.bytes > 0 || calls > 0) => text.push_str(&format!(", {calls:+} calls")),
        _ => {}
    }
    // A probe at the entry of functions cannot see whether they fail.
    if difference.errors != 0 && cell.counts == Some(ByteMeaning::Returned) {
        text.push_str(&format!(", {:+} errors", difference.errors));
    }
    text
}

/// Returns the CSS class of a cell with the text that [`one`] returned.
fn class(text: &str) -> Option<&'static str> {
    match text {
        "all" => Some("good"),
        "none" => Some("bad"),
        _ if text.starts_with("all,") || text.contains(" of ") || text.starts_with(['+', '-']) => Some("open"),
        _ => None,
    }
}

fn legend() -> Vec<String> {
    [
        "moves: what the workload's calls returned: all bytes, into the program (in) or out of it (out), or calls on names.",
        "all: the probe counted exactly these bytes, in as many calls; none: it counted nothing; else what it counted.",
        "pages: a mapping moves bytes without calls; all that can be counted is pages made accessible by page faults.",
        "not done: the kernel or the file system refuses the call with this error number, tracer or not.",
    ]
    .map(str::to_owned)
    .to_vec()
}

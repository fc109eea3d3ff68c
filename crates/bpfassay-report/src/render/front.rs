// SPDX-License-Identifier: MIT OR Apache-2.0
//! The front of a report: whether each tool loads, counts right, and what it costs. The end of the
//! output of `run`, `report.html`, the Markdown report and the summary of a job show it in the same
//! words.

mod below;
mod cell;
mod remarks;

use std::collections::HashMap;

use bpfassay_study::Clock;

pub(super) use self::cell::Shown;
use self::cell::{CellTexts, MatrixRow};
use super::{
    count,
    plain::{excerpt, line},
    result_summary::standing,
    study,
    table::Remarks,
};
use bpfassay_results::{CellResult, Results};

/// The largest number of tools or probe configurations with columns; if there are more, they have
/// rows.
const MOST_BLOCKS: usize = 4;
/// The largest number of rows in which everything is as expected.
const MOST_ROWS: usize = 24;
const MOST_ROWS_IN_ALL: usize = 60;
/// The longest list of workloads, in characters.
const LONGEST_LIST: usize = 150;

/// The format that shows the front, and the limits of this format.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrontPlace {
    /// Whether `✔` and `✘` can be shown; else `yes` and `no`.
    pub(super) symbols: bool,
    /// Tells where everything is that the front leaves out.
    pub(super) rest: &'static str,
    /// The largest number of remarks.
    pub(super) most_remarks: usize,
}

/// The place above the tables of a report.
pub(super) const IN_REPORT: FrontPlace =
    FrontPlace { symbols: true, rest: "the tables below have them", most_remarks: usize::MAX };

/// The texts of the front.
pub(super) struct Front {
    /// The size of the study: `quick · 8 targets · 72 runs · instruction clock`.
    pub(super) title: String,
    /// The conclusion about all results.
    pub(super) conclusion: String,
    /// The labels of the rows, in parts: target, and workload and file system if there are several.
    pub(super) labels: Vec<Vec<String>>,
    pub(super) columns: Vec<Column>,
    /// Describes the rows that are not shown.
    pub(super) left_out: Vec<String>,
    /// The capabilities that each tool needs, instructions on the path of each tool, the rest of each
    /// tool's bill, and sentences that compare two tools.
    pub(super) of_tools: Vec<String>,
    /// Remarks to which cells refer, each with its mark.
    pub(super) remarks: Vec<[String; 2]>,
    /// Lines about the remarks that are not shown, and about overheads.
    pub(super) legend: Vec<String>,
    /// Limits of what the figures show.
    pub(super) warnings: Vec<String>,
    pub(super) gates: Vec<String>,
}

/// A column of the matrix.
pub(super) struct Column {
    /// Columns with the same number have one title.
    pub(super) block: usize,
    pub(super) title: String,
    pub(super) head: String,
    /// A text for each row.
    pub(super) cells: Vec<Shown>,
}

impl Front {
    pub(super) fn of(results: &Results, place: &FrontPlace) -> Self {
        let mut remarks = Remarks::default();
        let matrix = Matrix::of(results, place, &mut remarks);
        let baselines = below::baselines(results, &mut remarks, place);
        let columns = matrix.columns();
        let (remarks, more) = remarks::lines(&remarks, place);
        let (marks, about_all) = remarks::legend(results, &columns);
        Self {
            title: title(results),
            conclusion: format!("{}: {}", line(&results.plan.title()), line(&standing(results).words)),
            left_out: matrix.left_out(place),
            labels: matrix.rows.into_iter().map(|row| row.label).collect(),
            of_tools: below::of_tools(results, place),
            remarks: remarks.into_iter().chain(marks).collect(),
            legend: more.into_iter().chain(about_all).collect(),
            warnings: [baselines, below::warnings(results, place)].concat(),
            gates: below::gates(results, place),
            columns,
        }
    }

    /// Returns label and cells of each row of a block.
    pub(super) fn rows<'a>(&'a self, block: &'a [Column]) -> impl Iterator<Item = (String, Vec<&'a Shown>)> {
        let cells = move |index: usize| block.iter().filter_map(|column| column.cells.get(index)).collect();
        self.labels.iter().enumerate().map(move |(index, label)| (label.join(" "), cells(index)))
    }

    /// Returns the name by which a page links to the remark with `mark`.
    #[expect(clippy::unused_self, reason = "templates call methods")]
    pub(super) fn anchor(&self, mark: &str) -> String {
        format!("remark-{}", mark.trim_matches(['[', ']', ':']))
    }

    /// Returns the columns of each tool or probe configuration.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &[Column]> {
        self.columns.chunk_by(|one, next| one.block == next.block)
    }
}

/// Formats the title.
fn title(results: &Results) -> String {
    let clock = match results.plan.study.clock {
        Clock::Instructions => "instruction clock",
        Clock::Wall => "wall clock",
    };
    let (targets, runs) = (count(results.plan.targets().len(), "target"), count(results.runs.len(), "run"));
    format!("{} · {targets} · {runs} · {clock}", line(&results.plan.title()))
}

/// Lists the names of several workloads, and the file systems; `None` for one workload.
pub(super) fn workloads(results: &Results) -> Option<String> {
    let cases = distinct(results.cells.iter().map(|cell| cell.case.as_str()));
    let file_systems = distinct(results.cells.iter().map(|cell| cell.file_system.as_str()));
    let names = excerpt(&cases.join(", "), LONGEST_LIST);
    let on = excerpt(&file_systems.join(", "), LONGEST_LIST);
    (cases.len() > 1).then(|| format!("{} workloads: {names}, on {on}", cases.len()))
}

/// Returns `items`, each once, in the order of first occurrence.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

/// Rows of places with blocks of columns, one block for each tool or probe configuration.
struct Matrix<'a> {
    names: Vec<String>,
    rows: Vec<Labelled>,
    /// The numbers of rows that are not shown: as expected, and others.
    left_out: [usize; 2],
    /// The metrics, in the order of the workloads.
    metrics: Vec<&'a str>,
    /// Whether counts are shown: workloads have figures, or a tool is under test.
    has_counts: bool,
}

struct Labelled {
    label: Vec<String>,
    /// A cell for each block, if the plan has one.
    cells: Vec<Option<MatrixRow>>,
}

/// A row before its cells are text.
type Unformatted<'a> = (Vec<String>, Vec<Option<&'a CellResult>>);

impl<'a> Matrix<'a> {
    fn of(results: &'a Results, place: &FrontPlace, remarks: &mut Remarks) -> Self {
        let texts = CellTexts::of(results, place.symbols);
        let tested = || results.cells.iter().filter(|cell| !cell.is_baseline());
        let mut names = distinct(tested().map(cell::title));
        let has_figures = study::has_figures(results);
        let measured = tested().filter(|_| has_figures);
        let metrics = distinct(measured.flat_map(|cell| cell.whole().map(|(metric, _)| &*metric.name)));
        let is_stacked = names.len() > MOST_BLOCKS;
        let places = places(results, &names, is_stacked);
        if is_stacked {
            names = vec![String::new()];
        }
        let (mut rows, mut good, mut left_out) = (Vec::new(), 0, [0, 0]);
        for (label, cells) in places {
            let is_good = cells.iter().flatten().all(|cell| texts.is_as_expected(cell));
            good += usize::from(is_good);
            if rows.len() >= MOST_ROWS_IN_ALL || (is_good && good > MOST_ROWS) {
                left_out[usize::from(!is_good)] += 1;
                continue;
            }
            let cells = cells.into_iter().map(|cell| Some(texts.row(cell?, &metrics, remarks))).collect();
            rows.push(Labelled { label, cells });
        }
        let has_counts = has_figures || results.cells.iter().any(|cell| cell.tool.is_some());
        Self { names, rows, left_out, metrics, has_counts }
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = Vec::new();
        for (block, name) in self.names.iter().enumerate() {
            let cells = |shown: &dyn Fn(&MatrixRow) -> Shown| -> Vec<Shown> {
                let of_row = |row: &Labelled| row.cells.get(block)?.as_ref().map(shown);
                self.rows.iter().map(|row| of_row(row).unwrap_or_default()).collect()
            };
            let mut add = |head: &str, shown: &dyn Fn(&MatrixRow) -> Shown| {
                columns.push(Column { block, title: name.clone(), head: head.to_owned(), cells: cells(shown) });
            };
            add("loads", &|row| row.loads.clone());
            if self.has_counts {
                add("counts", &|row| row.counts.clone());
            }
            let has_overheads = |index: usize| {
                let of_block = self.rows.iter().filter_map(|row| row.cells.get(block)?.as_ref()?.overheads.get(index));
                of_block.into_iter().any(|shown| !shown.text.is_empty() && shown.text != cell::NOTHING)
            };
            for (index, metric) in self.metrics.iter().enumerate().filter(|(index, _)| has_overheads(*index)) {
                add(metric, &|row| row.overheads.get(index).cloned().unwrap_or_default());
            }
        }
        if self.rows.is_empty() { Vec::new() } else { columns }
    }

    fn left_out(&self, place: &FrontPlace) -> Vec<String> {
        let [good, others] = self.left_out;
        let lines = [(good, "as expected"), (others, "NOT as expected")];
        let shown = lines.into_iter().filter(|(count, _)| *count > 0);
        shown.map(|(count, how)| format!("… and {count} more rows, {how}: {}", place.rest)).collect()
    }
}

/// Creates the rows: target, and workload and file system if there are several. If `is_stacked`,
/// each cell gets a separate row.
fn places<'a>(results: &'a Results, names: &[String], is_stacked: bool) -> Vec<Unformatted<'a>> {
    let is_of_many = |of: fn(&CellResult) -> &str| {
        let first = results.cells.first().map(of);
        results.cells.iter().any(|cell| Some(of(cell)) != first)
    };
    let (cases, file_systems) = (is_of_many(|cell| &cell.case), is_of_many(|cell| &cell.file_system));
    let mut places: Vec<Unformatted<'a>> = Vec::new();
    let mut known: HashMap<Vec<String>, usize> = HashMap::new();
    for cell in results.cells.iter().filter(|cell| !cell.is_baseline()) {
        let mut label = vec![cell.target.arch.to_string(), cell.target.kernel.clone()];
        label.extend(cases.then(|| cell.case.clone()));
        label.extend(file_systems.then(|| cell.file_system.clone()));
        let name = cell::title(cell);
        if is_stacked {
            // There is no room for the words that titles have in common.
            label.push(cell.under_test());
            places.push((label, vec![Some(cell)]));
            continue;
        }
        let at = *known.entry(label.clone()).or_insert(places.len());
        if at == places.len() {
            places.push((label, vec![None; names.len()]));
        }
        let block = names.iter().position(|known| *known == name);
        let slot = places.get_mut(at).and_then(|(_, cells)| cells.get_mut(block?));
        if let Some(slot) = slot {
            *slot = Some(cell);
        }
    }
    places
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of the output of `run`, on about one screen: whether each tool loads, counts right, and
//! what it costs. The report has everything else.

mod below;
mod cell;
mod lay_out;
mod remarks;

use bpfassay_study::Clock;

use self::{
    cell::{CellTexts, ShownCell},
    lay_out::Column,
};
use super::{
    finished, head,
    plain::{excerpt, line},
    result_summary::standing,
    study,
    table::Remarks,
    wrap::push_wrapped,
};
use bpfassay_results::{CellResult, Results};

/// How the screen looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Screen {
    /// Width of the terminal in columns. `None` without a terminal: tables are as wide as on one of
    /// 80 columns, and sentences are not wrapped, so that the text can be searched.
    pub width: Option<u16>,
    /// Whether the terminal can show `✔` and `✘`; else `yes` and `no`.
    pub symbols: bool,
}

/// The width without a terminal.
const WIDTH: u16 = 80;
/// A narrower terminal breaks lines itself.
const NARROWEST: u16 = 60;
/// The largest number of tools or probe configurations with columns; if there are more, they have
/// rows.
const MOST_BLOCKS: usize = 4;
/// The largest number of rows in which everything is as expected.
const MOST_ROWS: usize = 24;
const MOST_ROWS_IN_ALL: usize = 60;
/// The longest list of workloads, in characters.
const LONGEST_LIST: usize = 150;

impl Screen {
    fn columns(self) -> u16 {
        self.width.unwrap_or(WIDTH).max(NARROWEST)
    }
}

/// Renders `results` on about one screen.
#[must_use]
pub fn screen(results: &Results, style: Screen) -> String {
    let width = style.columns();
    let mut text = String::new();
    let mut push = |line: &str| push_wrapped(&mut text, line, style.width.map(|_| width));
    push(&title(results));
    push(&workloads(results));
    push("");
    let mut remarks = Remarks::default();
    let matrix = ScreenMatrix::of(results, style, &mut remarks);
    let baselines = below::baselines(results, &mut remarks);
    if !matrix.rows.is_empty() {
        for line in lay_out::lines(&matrix.labels(), &matrix.columns(results), usize::from(width)) {
            push(&line);
        }
        matrix.left_out().iter().for_each(|line| push(line));
        push("");
    }
    for line in [below::direct_costs(results), baselines].concat() {
        push(&line);
    }
    remarks::lines(&remarks).iter().for_each(|line| push(line));
    let cells = matrix.rows.iter().flat_map(|row| &row.cells).flatten();
    for line in [remarks::legend(results, cells), below::warnings(results), below::gates(results)].concat() {
        push(&line);
    }
    push(&format!("{}: {}", line(&results.plan.title()), line(&standing(results).words)));
    finished(text)
}

/// Formats the title: `quick · 8 targets · 72 runs · instruction clock`.
fn title(results: &Results) -> String {
    let count = |count: usize, of: &str| format!("{count} {of}{}", if count == 1 { "" } else { "s" });
    let clock = match results.plan.study.clock {
        Clock::Instructions => "instruction clock",
        Clock::Wall => "wall clock",
    };
    let (targets, runs) = (count(results.plan.targets().len(), "target"), count(results.runs.len(), "run"));
    format!("{} · {targets} · {runs} · {clock}", line(&results.plan.title()))
}

/// Formats the command of the workload, or the names of several, and the file systems.
fn workloads(results: &Results) -> String {
    let cases = distinct(results.cells.iter().map(|cell| cell.case.as_str()));
    let file_systems = distinct(results.cells.iter().map(|cell| cell.file_system.as_str()));
    if cases.len() < 2 {
        return format!("workload: {}", line(&head::workloads(results)));
    }
    let names = excerpt(&cases.join(", "), LONGEST_LIST);
    format!("{} workloads: {names}, on {}", cases.len(), excerpt(&file_systems.join(", "), LONGEST_LIST))
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
struct ScreenMatrix<'a> {
    names: Vec<String>,
    rows: Vec<ScreenRow>,
    /// The numbers of rows that are not shown: as expected, and others.
    left_out: [usize; 2],
    /// The metrics, in the order of the workloads.
    metrics: Vec<&'a str>,
}

struct ScreenRow {
    label: Vec<String>,
    /// A cell for each block, if the plan has one.
    cells: Vec<Option<ShownCell>>,
}

/// A row before its cells are text.
type PlaceRow<'a> = (Vec<String>, Vec<Option<&'a CellResult>>);

impl<'a> ScreenMatrix<'a> {
    fn of(results: &'a Results, style: Screen, remarks: &mut Remarks) -> Self {
        let texts = CellTexts::of(results, style.symbols);
        let tested = || results.cells.iter().filter(|cell| !cell.is_baseline());
        let mut names = distinct(tested().map(cell::title));
        let measured = tested().filter(|_| study::has_figures(results));
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
            let cells = cells.into_iter().map(|cell| Some(texts.shown(cell?, &metrics, remarks))).collect();
            rows.push(ScreenRow { label, cells });
        }
        Self { names, rows, left_out, metrics }
    }

    /// Returns the labels of the rows, aligned.
    fn labels(&self) -> Vec<String> {
        lay_out::aligned(self.rows.iter().map(|row| row.label.as_slice()))
    }

    fn columns(&self, results: &Results) -> Vec<Column> {
        let mut columns = Vec::new();
        for (block, name) in self.names.iter().enumerate() {
            let cells = |text: &dyn Fn(&ShownCell) -> String| -> Vec<String> {
                let of_row =
                    |row: &ScreenRow| row.cells.get(block).and_then(Option::as_ref).map(text).unwrap_or_default();
                self.rows.iter().map(of_row).collect()
            };
            let mut add = |head: &str, text: &dyn Fn(&ShownCell) -> String| {
                columns.push(Column { block, title: name.clone(), head: head.to_owned(), cells: cells(text) });
            };
            add("loads", &|cell| cell.loads.clone());
            if study::has_figures(results) || results.cells.iter().any(|cell| cell.tool.is_some()) {
                add("counts", &|cell| cell.counts.clone());
            }
            let has_overheads = |index: usize| {
                let of_block = self.rows.iter().filter_map(|row| row.cells.get(block)?.as_ref()?.overheads.get(index));
                of_block.into_iter().any(|text| !text.is_empty() && text != cell::NOTHING)
            };
            for (index, metric) in self.metrics.iter().enumerate().filter(|(index, _)| has_overheads(*index)) {
                add(metric, &|cell| cell.overheads.get(index).cloned().unwrap_or_default());
            }
        }
        columns
    }

    /// Describes the rows that are not shown.
    fn left_out(&self) -> Vec<String> {
        let [good, others] = self.left_out;
        let lines = [(good, "as expected"), (others, "NOT as expected")];
        let shown = lines.into_iter().filter(|(count, _)| *count > 0);
        shown.map(|(count, how)| format!("  … and {count} more rows, {how}: the report has them")).collect()
    }
}

/// Makes the rows: target, and workload and file system if there are several. If `is_stacked`, each
/// cell gets a separate row.
fn places<'a>(results: &'a Results, names: &[String], is_stacked: bool) -> Vec<PlaceRow<'a>> {
    let is_of_many = |of: fn(&CellResult) -> &str| {
        let first = results.cells.first().map(of);
        results.cells.iter().any(|cell| Some(of(cell)) != first)
    };
    let (cases, file_systems) = (is_of_many(|cell| &cell.case), is_of_many(|cell| &cell.file_system));
    let mut places: Vec<PlaceRow<'a>> = Vec::new();
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
        let at = match places.iter().position(|(known, _)| *known == label) {
            Some(at) => at,
            None => {
                places.push((label, vec![None; names.len()]));
                places.len() - 1
            }
        };
        let block = names.iter().position(|known| *known == name);
        let slot = places.get_mut(at).and_then(|(_, cells)| cells.get_mut(block?));
        if let Some(slot) = slot {
            *slot = Some(cell);
        }
    }
    places
}

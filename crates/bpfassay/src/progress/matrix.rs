// SPDX-License-Identifier: MIT OR Apache-2.0
//! The matrix below the bar while guests are measured: how many runs of each cell have ended, and
//! whether its tool attaches and counts right so far. It has no overheads, because further runs
//! change their intervals.

use std::collections::{BTreeMap, HashMap};

use bpfassay_results::{
    event::{Ending, RunEnded},
    plain::excerpt,
};
use bpfassay_study::{Cell, Plan, file_system_id};

use super::lines::byte_error;

/// The largest number of rows.
const MOST_ROWS: usize = 16;
/// The largest number of columns.
const MOST_COLUMNS: usize = 4;
/// Width of a column.
const WIDTH: usize = 14;
/// The longest label of a row, in characters.
const LONGEST_LABEL: usize = 40;

/// The state of the runs of a study.
pub(super) struct RunMatrix {
    /// Names of what is measured: a tool, or the bundled tracer by its probe.
    columns: Vec<String>,
    rows: Vec<Row>,
    /// The runs of the cells that are no warm-ups, by their ids.
    runs: HashMap<String, RunSoFar>,
}

struct Row {
    label: String,
    cells: Vec<CellSoFar>,
}

/// A run, and the place of its cell.
struct RunSoFar {
    row: usize,
    column: usize,
    /// How the run ended; a repeated run has its last end.
    state: Option<RunState>,
}

/// The runs of one cell.
#[derive(Default)]
struct CellSoFar {
    planned: usize,
    /// The number of ended runs in each state.
    ended: BTreeMap<RunState, usize>,
}

/// How a run ended. The last one in this order is shown for a cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RunState {
    Measured,
    Exact,
    Refused,
    Differs,
    Unexpected,
    Failed,
}

impl RunState {
    fn of(ended: &RunEnded) -> Self {
        match (ended.outcome, ended.is_expected) {
            (Ending::Failed, _) => Self::Failed,
            (_, false) => Self::Unexpected,
            (Ending::Refused, true) => Self::Refused,
            (Ending::Measured, true) => match byte_error(&ended.bytes) {
                None => Self::Measured,
                Some(sums) if sums.is_empty() => Self::Exact,
                Some(_) => Self::Differs,
            },
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Exact => "exact",
            Self::Refused => "refused",
            Self::Differs => "differs",
            Self::Unexpected => "UNEXPECTED",
            Self::Failed => "FAILED",
        }
    }
}

impl CellSoFar {
    fn text(&self) -> String {
        if self.planned == 0 {
            return "-".to_owned();
        }
        let words = self.worst().map_or("", RunState::words);
        format!("{}/{} {words}", self.ended(), self.planned).trim_end().to_owned()
    }

    fn ended(&self) -> usize {
        self.ended.values().sum()
    }

    fn is_under_way(&self) -> bool {
        (1..self.planned).contains(&self.ended())
    }

    fn is_bad(&self) -> bool {
        self.worst() >= Some(RunState::Differs)
    }

    /// Returns the last state in the order of [`RunState`] that a run has.
    fn worst(&self) -> Option<RunState> {
        self.ended.iter().rev().find(|(_, count)| **count > 0).map(|(state, _)| *state)
    }
}

impl RunMatrix {
    /// Returns the matrix of the runs of `plan`, none of which has ended.
    pub(super) fn of(plan: &Plan) -> Self {
        let place = |cell: &Cell| format!(" {} {}", cell.case, file_system_id(&cell.file_system));
        let first = plan.cells.first().map(place);
        let has_several = plan.cells.iter().any(|cell| Some(place(cell)) != first);
        let label = |cell: &Cell| {
            let place = if has_several { place(cell) } else { String::new() };
            excerpt(&format!("{}{place}", cell.target), LONGEST_LABEL)
        };
        let mut matrix = Self { columns: Vec::new(), rows: Vec::new(), runs: HashMap::new() };
        let mut of_cells = HashMap::new();
        for cell in plan.measured_cells().into_iter().filter(|cell| !cell.is_baseline()) {
            let title = cell.tool.clone().unwrap_or_else(|| cell.probe.to_string());
            let column = position(&mut matrix.columns, |known| *known == title, || title.clone());
            let label = label(cell);
            let row = position(
                &mut matrix.rows,
                |row| row.label == label,
                || Row { label: label.clone(), cells: Vec::new() },
            );
            of_cells.insert(cell.id.as_str(), (row, column));
        }
        for row in &mut matrix.rows {
            row.cells.resize_with(matrix.columns.len(), CellSoFar::default);
        }
        let runs = plan.measured_blocks().into_iter().flat_map(|block| &block.runs);
        for run in runs.filter(|run| !run.warm_up) {
            let Some(&(row, column)) = of_cells.get(run.cell.as_str()) else { continue };
            matrix.runs.insert(run.spec.id.clone(), RunSoFar { row, column, state: None });
            if let Some(cell) = matrix.rows.get_mut(row).and_then(|row| row.cells.get_mut(column)) {
                cell.planned += 1;
            }
        }
        matrix
    }

    /// Adds the end of a run. Ignores baselines and warm-ups.
    pub(super) fn take(&mut self, ended: &RunEnded) {
        let Some(run) = self.runs.get_mut(&ended.run) else { return };
        let cell = self.rows.get_mut(run.row).and_then(|row| row.cells.get_mut(run.column));
        let Some(CellSoFar { ended: counts, .. }) = cell else { return };
        let state = RunState::of(ended);
        if let Some(count) = run.state.replace(state).and_then(|before| counts.get_mut(&before)) {
            *count = count.saturating_sub(1);
        }
        *counts.entry(state).or_default() += 1;
    }

    /// Formats the matrix with lines of at most `width` columns. If there are too many rows, only
    /// rows under way and rows with faults are shown. Empty if there are too many columns.
    pub(super) fn text(&self, width: usize) -> String {
        let of_label = self.rows.iter().map(|row| row.label.chars().count()).max().unwrap_or_default();
        if self.columns.len() > MOST_COLUMNS
            || self.columns.is_empty()
            || of_label + self.columns.len() * (WIDTH + 2) > width
        {
            return String::new();
        }
        let is_first = |row: &&Row| row.cells.iter().any(|cell| cell.is_under_way() || cell.is_bad());
        let rows: Vec<&Row> = match self.rows.len() {
            0..=MOST_ROWS => self.rows.iter().collect(),
            _ => self.rows.iter().filter(is_first).take(MOST_ROWS).collect(),
        };
        let line = |label: &str, cells: Vec<String>| {
            let cells: String = cells.iter().map(|cell| format!("  {:WIDTH$}", excerpt(cell, WIDTH))).collect();
            format!("  {label:of_label$}{cells}").trim_end().to_owned()
        };
        let head = line("", self.columns.clone());
        let of_rows = rows.iter().map(|row| line(&row.label, row.cells.iter().map(CellSoFar::text).collect()));
        let more = self.rows.len().saturating_sub(rows.len());
        let more = (more > 0).then(|| format!("  … and {more} more rows"));
        [head].into_iter().chain(of_rows).chain(more).collect::<Vec<_>>().join("\n")
    }
}

/// Returns the position of the first element of `all` for which `is_it` is true. Appends the result
/// of `make` if there is none.
fn position<T>(all: &mut Vec<T>, is_it: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> usize {
    all.iter().position(is_it).unwrap_or_else(|| {
        all.push(make());
        all.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use bpfassay_study::{Available, Narrowing};

    use super::*;
    use crate::progress::lines::tests::hostile;

    fn quick() -> Plan {
        let study = bpfassay_study::load("quick").unwrap();
        bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap()
    }

    #[test]
    fn each_cell_has_the_number_of_its_runs_and_the_worst_end() {
        let plan = quick();
        let mut matrix = RunMatrix::of(&plan);
        assert_eq!(matrix.text(79).lines().count(), 1 + plan.targets().len());
        let runs = |probe: &str| -> Vec<String> {
            let of_target =
                |run: &&bpfassay_study::PlannedRun| run.cell.starts_with("x86_64_6.12_") && run.cell.ends_with(probe);
            plan.runs()
                .map(|(_, run)| run)
                .filter(of_target)
                .filter(|run| !run.warm_up)
                .map(|run| run.spec.id.clone())
                .collect()
        };
        let (fexit, kprobe) = (runs("_fexit"), runs("_kprobe"));
        let ended =
            |run: &str, outcome, is_expected| RunEnded { run: run.to_owned(), outcome, is_expected, ..hostile() };
        matrix.take(&ended(&fexit[0], Ending::Measured, true));
        // A run that is repeated counts once.
        matrix.take(&ended(&fexit[0], Ending::Measured, true));
        matrix.take(&ended(&fexit[1], Ending::Failed, false));
        matrix.take(&ended(&fexit[1], Ending::Measured, true));
        matrix.take(&ended(&kprobe[0], Ending::Failed, false));
        matrix.take(&ended(&kprobe[1], Ending::Measured, true));
        matrix.take(&ended("x86_64_6.12_quick_nfs4.2_1_w1_none", Ending::Measured, true));
        let text = matrix.text(79);
        let line = text.lines().find(|line| line.contains("x86_64 6.12 ")).unwrap();
        let of = fexit.len();
        assert!(line.contains(&format!("2/{of} FAILED")) && line.contains(&format!("2/{of} measured")), "{text}");
        assert_eq!(text.matches(&format!("0/{of}")).count(), 2 * (plan.targets().len() - 1), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 79), "{text}");
    }

    #[test]
    fn a_narrow_terminal_has_no_matrix_and_a_long_one_is_cut() {
        let mut plan = quick();
        assert_eq!(RunMatrix::of(&plan).text(30), "");
        let cells = plan.cells.clone();
        for number in 0..10 {
            plan.cells.extend(cells.iter().cloned().map(|mut cell| {
                cell.case = format!("other{number}");
                cell.id = format!("{}_{number}", cell.id);
                cell
            }));
        }
        let text = RunMatrix::of(&plan).text(100);
        assert!(text.lines().count() <= MOST_ROWS + 2 && text.ends_with("more rows"), "{text}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The code coverage of programs on the page: source lines with their executions, over all targets
//! on which the programs ran.

use std::collections::{BTreeMap, BTreeSet};

use super::plain;
use bpfassay_results::{CellResult, CodeCoverage, CoveredLines, Figure, Results};

/// The largest number of lines on a page. Further programs show only their sums.
const MAX_LINES: usize = 6_000;

/// The code coverage that the page shows.
pub(super) struct Covered {
    pub(super) programs: Vec<CoverageListing>,
    /// Missing coverage: what was under test with all or some programs and the places, and the
    /// reason.
    pub(super) missing: Vec<[String; 2]>,
}

pub(super) struct CoverageListing {
    /// The thing under test, and the program's name.
    pub(super) title: String,
    pub(super) summary: String,
    /// The cells in which the program ran.
    pub(super) cells: String,
    pub(super) files: Vec<ListedFile>,
}

/// The lines of one source file.
pub(super) struct ListedFile {
    pub(super) name: String,
    pub(super) lines: Vec<ListedLine>,
}

pub(super) struct ListedLine {
    pub(super) number: u32,
    pub(super) executions: u64,
    pub(super) text: String,
    /// Remarks on the line's branches.
    pub(super) branches: String,
    pub(super) class: &'static str,
}

/// Missing coverage by what was under test and reason: the programs, or none for all programs, and
/// the places.
type MissingCoverage = BTreeMap<(String, String), [BTreeSet<String>; 2]>;

/// A program over the cells in which it was under test.
#[derive(Default)]
struct Sum {
    cells: Vec<String>,
    /// Lines by file and number: text, executions, the cells in which the line has code, and those
    /// in which it ran. Branches are keyed by their positions.
    lines: BTreeMap<(String, u32), LineSum>,
}

#[derive(Default)]
struct LineSum {
    text: String,
    executions: u64,
    has_code: usize,
    ran: usize,
    branches: Vec<Option<[u64; 2]>>,
}

/// Returns the coverage; `None` if nothing was counted.
pub(super) fn covered(results: &Results) -> Option<Covered> {
    let mut sums = BTreeMap::<(String, String), Sum>::new();
    let mut missing = MissingCoverage::new();
    let mut is_any = false;
    for cell in &results.cells {
        match &cell.code_coverage {
            None => continue,
            Some(Figure::NotMeasured(reason)) => {
                let [_, places] = missing.entry((cell.under_test(), reason.to_string())).or_default();
                places.insert(place(cell));
            }
            Some(Figure::Value(coverage)) => add(cell, coverage, &mut sums, &mut missing),
        }
        is_any = true;
    }
    let missing = missing.into_iter().map(|((under_test, why), of)| {
        let [programs, places] = of.map(|names| names.into_iter().collect::<Vec<_>>().join(", "));
        let what = if programs.is_empty() { under_test } else { format!("{under_test}, programs {programs}") };
        [format!("{what}; {places}"), why]
    });
    let mut left = MAX_LINES;
    let listed = |sum| {
        let mut listing = listing(sum);
        let lines = listing.files.iter().map(|file| file.lines.len()).sum();
        match left.checked_sub(lines) {
            Some(remains) => left = remains,
            None => {
                listing.files.clear();
                listing.summary.push_str("; the page is full: its lines are in the format lcov");
            }
        }
        listing
    };
    is_any.then(|| Covered { programs: sums.into_iter().map(listed).collect(), missing: missing.collect() })
}

fn place(cell: &CellResult) -> String {
    format!("{} {} {}", cell.target, cell.case, cell.file_system)
}

fn add(
    cell: &CellResult,
    coverage: &CodeCoverage,
    sums: &mut BTreeMap<(String, String), Sum>,
    missing: &mut MissingCoverage,
) {
    for program in &coverage.programs {
        match &program.lines {
            Figure::NotMeasured(reason) => {
                let [programs, places] = missing.entry((cell.under_test(), reason.to_string())).or_default();
                programs.insert(program.program.clone());
                places.insert(place(cell));
            }
            Figure::Value(lines) => {
                let sum = sums.entry((cell.under_test(), program.program.clone())).or_default();
                sum.cells.push(place(cell));
                sum.add(lines);
            }
        }
    }
}

impl Sum {
    fn add(&mut self, covered: &CoveredLines) {
        for line in &covered.lines {
            let Some(file) = covered.files.get(line.file as usize) else { continue };
            let sum = self.lines.entry((file.clone(), line.line)).or_default();
            if sum.text.is_empty() {
                sum.text.clone_from(&line.text);
            }
            sum.executions = sum.executions.saturating_add(line.executions);
            sum.has_code += 1;
            sum.ran += usize::from(line.executions > 0);
            sum.branches.resize(sum.branches.len().max(line.branches.len()), Some([0; 2]));
            for (sum, branch) in sum.branches.iter_mut().zip(&line.branches) {
                *sum = sum.zip(branch.outcomes).map(|(sum, more)| [0, 1].map(|of| sum[of].saturating_add(more[of])));
            }
        }
    }
}

fn listing(((under_test, program), sum): ((String, String), Sum)) -> CoverageListing {
    let ran = sum.lines.values().filter(|line| line.executions > 0).count();
    let outcomes: Vec<u64> = sum.lines.values().flat_map(|line| &line.branches).flatten().flatten().copied().collect();
    let came = outcomes.iter().filter(|count| **count > 0).count();
    let mut summary = format!("{ran} of {} lines ran", sum.lines.len());
    if !outcomes.is_empty() {
        summary.push_str(&format!(", {came} of {} outcomes of branches came about", outcomes.len()));
    }
    let mut files: Vec<ListedFile> = Vec::new();
    for ((name, number), line) in sum.lines {
        if files.last().is_none_or(|file| file.name != name) {
            files.push(ListedFile { name, lines: Vec::new() });
        }
        if let Some(file) = files.last_mut() {
            file.lines.push(shown(number, line));
        }
    }
    CoverageListing { title: format!("{under_test}: {program}"), summary, cells: sum.cells.join(", "), files }
}

fn shown(number: u32, line: LineSum) -> ListedLine {
    let mut branches: Vec<String> = line
        .branches
        .iter()
        .map(|outcomes| match outcomes {
            None => "branch: not measured".to_owned(),
            Some([jumped, not]) => format!("jumped {jumped}, not {not}"),
        })
        .collect();
    if line.ran > 0 && line.ran < line.has_code {
        branches.push(format!("ran in {} of {} cells", line.ran, line.has_code));
    }
    let is_partial = line.branches.iter().flatten().any(|[jumped, not]| (*jumped > 0) != (*not > 0));
    let class = match (line.executions, is_partial) {
        (0, _) => "bad",
        (_, true) => "open",
        (_, false) => "",
    };
    // A tab has the width that it has in programs' sources, not one space.
    let text = plain::line(&line.text.replace('\t', "    ")).into_owned();
    ListedLine { number, executions: line.executions, text, branches: branches.join("; "), class }
}

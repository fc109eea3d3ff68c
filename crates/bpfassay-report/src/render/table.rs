// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table, before it is text, Markdown or HTML.

use std::collections::HashMap;

use bpfassay_study::Target;

use super::failure_events::FailureEvents;
use crate::{compare::Comparison, labels::NONE};
use bpfassay_results::{CellResult, Results, RunFailure};

/// A table with the texts above and below it.
pub(super) struct TextTable {
    /// The title, in lines; the last line distinguishes several tables.
    pub(super) title: Vec<String>,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// Warnings to read with the table.
    pub(super) warnings: Vec<String>,
    /// Numbered remarks, to which cells refer as `[n]`.
    pub(super) remarks: Vec<String>,
    /// How to read the columns.
    pub(super) legend: Vec<String>,
    /// The name by which a page links to this table, if it has one.
    pub(super) anchor: Option<&'static str>,
    /// Returns a cell's class in formats with colours: `good`, `bad`, `open`; `None` for no colour.
    pub(super) class: fn(&str) -> Option<&'static str>,
    /// Returns the target of a cell's link on a page, as `#name`; `None` for no link.
    pub(super) link: fn(&str) -> Option<String>,
}

impl TextTable {
    pub(super) fn new<C: Into<String>>(title: impl Into<String>, columns: impl IntoIterator<Item = C>) -> Self {
        Self {
            title: vec![title.into()],
            columns: columns.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
            warnings: Vec::new(),
            remarks: Vec::new(),
            legend: Vec::new(),
            anchor: None,
            class: verdict_class,
            link: |_| None,
        }
    }

    /// Returns the name of a column, for a cell that stands alone.
    pub(super) fn column(&self, index: usize) -> &str {
        self.columns.get(index).map_or("", String::as_str)
    }

    /// Returns what distinguishes this table from others: titles begin with the study.
    pub(super) fn last_line(&self) -> &str {
        self.title.last().map_or("", String::as_str)
    }
}

/// Returns the class of a cell that is a verdict.
fn verdict_class(text: &str) -> Option<&'static str> {
    match text {
        "SLOWER" | "HIGHER" | "BROKEN" | "MISCOUNTS" | "regression" | "NO!" | "OK!" | "BAD" => Some("bad"),
        "inconclusive" | "ok?" | "-?" | "?" => Some("open"),
        "faster" | "lower" | "mended" | "ok" | "pass" => Some("good"),
        _ => {
            ["REFUSED:", "NOT READY:", "FAILED:", "UNSTEADY:"].iter().any(|label| text.contains(label)).then_some("bad")
        }
    }
}

/// Remarks, each once.
#[derive(Default)]
pub(super) struct Remarks(pub(super) Vec<String>, HashMap<String, usize>, Failures);

/// Failures of runs, and the numbers of their remarks.
#[derive(Default)]
struct Failures {
    alike: FailureEvents,
    numbers: Vec<usize>,
}

impl Remarks {
    /// Returns the mark by which a cell refers to `remark`: `[n]`.
    pub(super) fn mark(&mut self, remark: String) -> String {
        let number = match self.1.get(&remark) {
            Some(&number) => number,
            None => {
                self.0.push(remark.clone());
                self.1.insert(remark, self.0.len());
                self.0.len()
            }
        };
        format!("[{number}]")
    }

    /// Returns the text for a figure that is missing for `reason`.
    pub(super) fn missing(&mut self, reason: &str) -> String {
        format!("{NONE} {}", self.mark(reason.to_owned()))
    }

    /// Returns the mark by which a cell of `target` refers to the failure of `run`. Runs that one
    /// event failed share a remark.
    pub(super) fn mark_failure(&mut self, target: &Target, run: &str, failure: &RunFailure) -> String {
        let Self(remarks, _, Failures { alike, numbers }) = self;
        let (event, is_new) = alike.add(target, run, failure);
        if is_new {
            remarks.push(String::new());
            numbers.push(remarks.len());
        }
        let number = numbers.get(event).copied().unwrap_or_default();
        if let Some(remark) = number.checked_sub(1).and_then(|at| remarks.get_mut(at)) {
            *remark = alike.remark(event);
        }
        format!("[{number}]")
    }
}

/// How rows name their cells: by target, and by workload and file system if there are several.
#[derive(Clone, Copy)]
pub(super) struct CellNames {
    many_cases: bool,
    many_file_systems: bool,
}

impl CellNames {
    pub(super) fn of(results: &Results) -> Self {
        Self::among(results.cells.iter().map(|cell| (cell.case.as_str(), cell.file_system.as_str())))
    }

    pub(super) fn of_comparison(comparison: &Comparison) -> Self {
        Self::among(comparison.cells.iter().map(|cell| (cell.case.as_str(), cell.file_system.as_str())))
    }

    /// Names cells with these workload cases and file systems.
    fn among<'a>(cells: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut cells = cells.peekable();
        let mut names = Self { many_cases: false, many_file_systems: false };
        let Some(&(first_case, first_file_system)) = cells.peek() else { return names };
        for (case, file_system) in cells {
            names.many_cases |= case != first_case;
            names.many_file_systems |= file_system != first_file_system;
        }
        names
    }

    /// Returns the columns of [`Self::row`], and then `more`.
    pub(super) fn columns<'a>(self, more: &[&'a str]) -> Vec<&'a str> {
        let mut columns = vec!["target"];
        columns.extend(self.many_cases.then_some("workload"));
        columns.extend(self.many_file_systems.then_some("file system"));
        columns.push("probe");
        columns.extend(more);
        columns
    }

    /// Returns the first columns of a row of `cell`, blank for all but the `first` of its rows.
    pub(super) fn row(self, cell: &CellResult, first: bool) -> Vec<String> {
        let mut row = vec![cell.target.to_string()];
        row.extend(self.many_cases.then(|| cell.case.clone()));
        row.extend(self.many_file_systems.then(|| cell.file_system.clone()));
        row.push(cell.under_test());
        if !first {
            row.iter_mut().for_each(String::clear);
        }
        row
    }

    /// Formats target, workload and file system in one text.
    pub(super) fn place(self, cell: &CellResult) -> String {
        self.text(cell.target.to_string(), &cell.case, &cell.file_system)
    }

    /// Formats `target`, with the workload and the file system if there are several.
    pub(super) fn text(self, target: String, case: &str, file_system: &str) -> String {
        let mut text = target;
        for (name, is_one_of_many) in [(case, self.many_cases), (file_system, self.many_file_systems)] {
            if is_one_of_many {
                text = format!("{text} {name}");
            }
        }
        text
    }
}

/// Formats targets: `x86_64 6.1, 6.12; riscv64 7.2`.
pub(super) fn target_list(targets: &[&Target]) -> String {
    let mut by_arch: Vec<(String, Vec<&str>)> = Vec::new();
    for target in targets {
        let arch = target.arch.to_string();
        match by_arch.iter_mut().find(|(known, _)| *known == arch) {
            Some((_, kernels)) => kernels.push(&target.kernel),
            None => by_arch.push((arch, vec![&target.kernel])),
        }
    }
    by_arch.iter().map(|(arch, kernels)| format!("{arch} {}", kernels.join(", "))).collect::<Vec<_>>().join("; ")
}

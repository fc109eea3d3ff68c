// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of the output of `run`: the front of the report on about one screen.

mod lay_out;

use super::{
    finished,
    front::{Front, FrontPlace, workloads},
    head,
    plain::line,
    wrap::push_wrapped,
};
use bpfassay_results::Results;

/// The layout of the screen.
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
const MOST_REMARKS: usize = 8;

/// Renders `results` on about one screen.
#[must_use]
pub fn screen(results: &Results, style: Screen) -> String {
    let width = style.width.unwrap_or(WIDTH).max(NARROWEST);
    let place = FrontPlace { symbols: style.symbols, rest: "the report has them", most_remarks: MOST_REMARKS };
    let front = Front::of(results, &place);
    let mut text = String::new();
    let mut push = |line: &str| push_wrapped(&mut text, line, style.width.map(|_| width));
    push(&front.title);
    let workloads = workloads(results).unwrap_or_else(|| format!("workload: {}", head::workloads(results)));
    push(&line(&workloads));
    push("");
    if !front.labels.is_empty() {
        for line in lay_out::lines(&lay_out::aligned(&front.labels), &front.columns, usize::from(width)) {
            push(&line);
        }
        front.left_out.iter().for_each(|line| push(&format!("  {line}")));
        push("");
    }
    front.costs.iter().for_each(|line| push(line));
    let marked = front.remarks.iter().map(|parts| line(&parts.join(" ")).into_owned());
    let warnings = front.warnings.iter().map(|line| format!("! {line}"));
    for line in marked.chain(front.legend).chain(warnings).chain(front.gates) {
        push(&line);
    }
    push(&front.conclusion);
    finished(text)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Annotations and the summary of a job for GitHub Actions, and for forges that understand both.

mod job_summary;

use std::collections::HashMap;

use super::{
    cases::{self, Account, CaseOutcome, SuiteCase},
    failure_events::FailureEvents,
    finished,
    format::{Rendered, ReportFormat},
    plain,
    result_summary::standing,
};
use bpfassay_results::{CellResult, Demand, Results};

pub(super) const FORMAT: ReportFormat = ReportFormat {
    name: "github",
    about: "Annotations of a workflow, and the summary of its job",
    file: None,
    render: |results, _| {
        let Github { annotations, summary } = github(results);
        Ok(Rendered::Job { annotations, summary })
    },
};

/// The number of annotations of one level that GitHub shows for a step.
const MOST: usize = 10;

/// The longest title of an annotation, in characters.
const LONGEST_TITLE: usize = 200;

/// The longest line of a message, in characters.
const LONGEST_LINE: usize = 1000;

/// The largest number of lines of a message.
const MOST_LINES: usize = 20;

/// The output of a job for results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Github {
    /// Workflow commands, one per line, for standard output.
    pub annotations: String,
    /// Markdown of at most 65,536 bytes.
    pub summary: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// Makes `run` end with exit code 4 or 5.
    Error,
    /// Something is not known, or a finding that no gate denies.
    Warning,
    Notice,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
        }
    }
}

struct Annotation {
    level: Level,
    title: String,
    lines: Vec<String>,
}

/// Renders `results` as annotations and as the summary of a job.
///
/// An error is a wrong measurement or a failure. A warning is something undecided, or a finding
/// that no gate denies. GitHub shows at most ten annotations of each level, so no more are written;
/// the last one then tells how many more there are.
#[must_use]
pub fn github(results: &Results) -> Github {
    let mut all = of_cases(results);
    all.extend(of_failures(results));
    all.extend(of_findings(results));
    let mut annotations = String::new();
    for level in [Level::Error, Level::Warning] {
        let of_level: Vec<&Annotation> = all.iter().filter(|annotation| annotation.level == level).collect();
        let shown = if of_level.len() > MOST { MOST - 1 } else { of_level.len() };
        for annotation in of_level.iter().take(shown) {
            push(&mut annotations, level, &annotation.title, &annotation.lines);
        }
        if let Some(more) = of_level.len().checked_sub(shown).filter(|more| *more > 0) {
            let line = format!("GitHub shows {MOST} of a step; the report has them all");
            push(&mut annotations, level, &format!("{more} more of this level"), &[line]);
        }
    }
    let title = format!("bpfassay, study {}", results.plan.title());
    push(&mut annotations, Level::Notice, &title, &[standing(results).words]);
    Github { annotations: finished(annotations), summary: finished(job_summary::summary(results)) }
}

fn push(text: &mut String, level: Level, title: &str, lines: &[String]) {
    let mut shown: Vec<String> = lines.iter().take(MOST_LINES).map(|line| plain::excerpt(line, LONGEST_LINE)).collect();
    if let Some(more) = lines.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
        shown.push(format!("and {more} more lines"));
    }
    let title = property(&plain::excerpt(title, LONGEST_TITLE));
    text.push_str(&format!("::{} title={title}::{}\n", level.name(), data(&shown.join("\n"))));
}

/// Escapes the message of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// Returns every case that did not pass, gates first. Failed runs are left out, because several can
/// be one event.
fn of_cases(results: &Results) -> Vec<Annotation> {
    // Demands of gates were requested explicitly.
    let asked_for = cases::suites(results).into_iter().skip(1).flat_map(|suite| suite.cases);
    let cells = results.cells.iter().filter(|cell| cell.failures.is_empty()).map(cases::cell);
    asked_for.chain(cells).filter_map(of_case).collect()
}

fn of_case(case: SuiteCase) -> Option<Annotation> {
    let CaseOutcome::Failed { account, what, message } = case.outcome else { return None };
    let level = match account {
        Account::Wrong | Account::Failed => Level::Error,
        Account::Undecided => Level::Warning,
    };
    let lines = std::iter::once(message).chain(case.evidence).collect();
    Some(Annotation { level, title: format!("{what}: {}", case.name), lines })
}

/// Returns the failures of runs, one for each event: a guest that does not boot fails all of its
/// runs.
fn of_failures(results: &Results) -> Vec<Annotation> {
    let mut alike = FailureEvents::default();
    let mut events = Vec::new();
    for cell in &results.cells {
        for failure in &cell.failures {
            let (number, is_new) = alike.add(&cell.target, &failure.run, &failure.failure);
            if is_new {
                events.push((number, cell, failure));
            }
        }
    }
    let annotation = |(number, cell, failure): (usize, &CellResult, _)| {
        let (account, what) = cases::account_of(failure);
        let level = if account == Account::Undecided { Level::Warning } else { Level::Error };
        Annotation { level, title: format!("{what}: {}", cell.cell), lines: vec![alike.remark(number)] }
    };
    events.into_iter().map(annotation).collect()
}

/// Returns the findings of tools that no gate denies.
fn of_findings(results: &Results) -> Vec<Annotation> {
    let mut gates: HashMap<&str, Vec<u32>> = HashMap::new();
    for gate in results.gates.iter().filter(|gate| gate.demand == Demand::Findings) {
        gates.entry(gate.cell.as_str()).or_default().push(gate.gate);
    }
    let mut annotations = Vec::new();
    for cell in &results.cells {
        let of_cell = gates.get(cell.cell.as_str()).map_or(&[][..], Vec::as_slice);
        for finding in cases::found(cell) {
            if !of_cell.iter().any(|gate| cases::denies(results, *gate, finding)) {
                let title = format!("found: {} on {}, {}", finding.kind, cell.target, cell.under_test());
                annotations.push(Annotation { level: Level::Warning, title, lines: cases::evidence(finding) });
            }
        }
    }
    annotations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_escaped_as_the_runner_reads_them() {
        let mut text = String::new();
        push(&mut text, Level::Error, "a: b, 5%\r\n::c", &["100%, d: e\u{1b}\r".to_owned(), "::error::f".to_owned()]);
        let title = "a%3A b%2C 5%25\\x0d %3A%3Ac";
        assert_eq!(text, format!("::error title={title}::100%25, d: e\\x1b\\x0d%0A::error::f\n"));
    }

    #[test]
    fn long_messages_are_cut_and_say_so() {
        let mut text = String::new();
        push(&mut text, Level::Warning, &"t".repeat(1000), &vec!["l".repeat(5000); 30]);
        assert!(text.ends_with("%0Aand 10 more lines\n") && text.len() < 22_000, "{}", text.len());
        assert!(text.contains(&format!("title={}…::{}…%0A", "t".repeat(200), "l".repeat(1000))));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report as an HTML page that needs no other file, no network and no scripts. The code
//! coverage of eBPF programs, which is much longer, has a second page next to it.
//!
//! The page begins as the end of `run` does. It has the terminal's tables, plots, failures with
//! excerpts of their logs, and the command to repeat the study.

mod code_coverage;
mod comparison;
mod escape;
mod figures;
mod plot;
mod standalone;

use askama::Template;
use bpfassay_tool::finding::{Kind, KindAdvice};

pub(super) use self::standalone::FORMAT as SVG_FORMAT;
use self::{
    code_coverage::{Covered, covered},
    figures::Plots,
};
pub use self::{comparison::comparison_html, standalone::figure_svg};
use super::{
    failure_events::FailureEvents,
    finished as escaped,
    format::{FormatOptions, Rendered, ReportFormat},
    front::{self, Front, IN_REPORT},
    head, kernel_features, plain,
    sections::{self, sections, tools},
    table::TextTable,
};
use crate::labels;
use bpfassay_results::{Attach, Results, fingerprint, outcome::RunFailure};

#[derive(Template)]
#[template(path = "report.html")]
struct ReportPage<'a> {
    results: &'a Results,
    title: String,
    description: &'a str,
    front: Front,
    workloads: String,
    facts: Vec<(&'static str, String)>,
    counts: Vec<SummaryCount>,
    tables: Vec<TextTable>,
    has_paths: bool,
    plots: Vec<Plots>,
    coverage: Option<CoverageLink<'a>>,
    findings: Vec<FindingItem>,
    failures: Vec<FailureItem>,
    repeat: String,
    style: &'static str,
}

/// The page of code coverage.
#[derive(Template)]
#[template(path = "coverage.html")]
struct CoveragePage {
    title: String,
    coverage: Covered,
    style: &'static str,
}

/// The page with the lines of programs.
struct CoverageLink<'a> {
    /// The page next to this one, if there is one.
    page: Option<&'a str>,
}

/// The name of the page of code coverage next to `report.html`.
const COVERAGE: &str = "code-coverage.html";

const STYLE: &str = include_str!("../../templates/report.css");

/// A number at the top of a page.
struct SummaryCount {
    number: usize,
    what: &'static str,
    /// The CSS class: `good`, `bad`, `open`, or empty.
    class: &'static str,
}

impl SummaryCount {
    /// Creates a count; a count of 0 has no colour.
    fn new(number: usize, what: &'static str, class: &'static str) -> Self {
        Self { number, what, class: if number == 0 { "" } else { class } }
    }
}

/// A kind of finding in a tool.
struct FindingItem {
    anchor: String,
    name: &'static str,
    advice: KindAdvice,
}

struct FailureItem {
    what: String,
    why: String,
    excerpt: Vec<String>,
    log: Option<String>,
}

pub(super) const FORMAT: ReportFormat = ReportFormat {
    name: "html",
    about: "A page with tables and plots, and a page of code coverage",
    file: Some("report.html"),
    render: |results, FormatOptions { coverage, .. }| {
        let beside = if coverage.is_some() { code_coverage_html(results)? } else { None };
        Ok(Rendered::Page { page: page(results, coverage)?, coverage: beside })
    },
};

/// Renders `results` as an HTML page, which links to `code-coverage.html` next to it if executions
/// were counted.
///
/// # Errors
/// [`std::fmt::Error`], which writing into memory never causes.
pub fn html(results: &Results) -> Result<String, std::fmt::Error> {
    page(results, Some(COVERAGE))
}

/// Renders the page of code coverage; `None` if executions were not counted.
///
/// # Errors
/// [`std::fmt::Error`], which writing into memory never causes.
pub fn code_coverage_html(results: &Results) -> Result<Option<String>, std::fmt::Error> {
    let title = format!("{}: code coverage of eBPF programs", results.plan.title());
    covered(results).map(|coverage| finished(&CoveragePage { title, coverage, style: STYLE })).transpose()
}

/// Names the page of code coverage next to a report with the file name `report`. The name has only
/// characters that a link can have.
#[must_use]
pub fn code_coverage_file(report: &str) -> String {
    if report == "report.html" {
        return COVERAGE.to_owned();
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name = report.strip_suffix(".html").unwrap_or(report);
    let name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    format!("{name}-{COVERAGE}")
}

/// Renders the page with a link to the page `coverage`.
fn page(results: &Results, coverage: Option<&str>) -> Result<String, std::fmt::Error> {
    let study = &results.plan.study;
    let tables = sections(results).flat_map(|section| match section {
        sections::ReportSection::Table(table) => vec![table],
        sections::ReportSection::Matrix(page) => kernel_features::tables(&page),
    });
    let tables: Vec<TextTable> = tables.collect();
    let workloads = front::workloads(results);
    let mut facts = head::facts(results);
    // If there is only one workload, it is named above the matrix.
    facts.retain(|(name, _)| *name != head::WORKLOAD || workloads.is_some());
    facts.push(("fingerprint", fingerprint(results.runs.iter().map(|run| &run.record))));
    let has_coverage = results.cells.iter().any(|cell| cell.code_coverage.is_some());
    finished(&ReportPage {
        results,
        title: format!("{}: bpfassay report", results.plan.title()),
        description: study.description.trim(),
        workloads: workloads.unwrap_or_else(|| format!("workload: {}", head::workloads(results))),
        facts,
        front: Front::of(results, &IN_REPORT),
        counts: counts(results),
        has_paths: tables.iter().any(|table| table.anchor == Some("paths")),
        tables,
        plots: figures::plots(results),
        coverage: has_coverage.then_some(CoverageLink { page: coverage }),
        findings: tools::found(results).into_iter().map(FindingItem::new).collect(),
        failures: failures(results),
        repeat: repeat(results),
        style: STYLE,
    })
}

impl FindingItem {
    fn new(kind: Kind) -> Self {
        Self { anchor: tools::anchor(kind), name: kind.name(), advice: kind.advice() }
    }
}

fn finished(page: &impl Template) -> Result<String, std::fmt::Error> {
    // The errors are errors of writing. A template with an unknown name would not compile.
    let page = page.render().map_err(|_| std::fmt::Error)?;
    Ok(escaped(page))
}

/// Counts the outcomes in the matrix of features.
fn counts(results: &Results) -> Vec<SummaryCount> {
    let of_matrix = results.kernel_features.as_ref().map(|matrix| {
        [
            SummaryCount::new(matrix.configurations.len(), "probe configurations", ""),
            SummaryCount::new(matrix.features.len(), "features", ""),
            SummaryCount::new(matrix.surprises().count(), "surprises", "bad"),
        ]
    });
    of_matrix.into_iter().flatten().collect()
}

fn failures(results: &Results) -> Vec<FailureItem> {
    let failure = |what: String, failure: &RunFailure| FailureItem {
        what,
        why: failure.headline(),
        excerpt: failure.excerpt.clone(),
        log: failure.log.clone(),
    };
    let mut alike = FailureEvents::default();
    let mut events: Vec<&RunFailure> = Vec::new();
    for cell in &results.cells {
        for failed in &cell.failures {
            if alike.add(&cell.target, &failed.run, &failed.failure).1 {
                events.push(&failed.failure);
            }
        }
    }
    let runs = events.into_iter().enumerate().map(|(number, failed)| failure(alike.runs(number), failed));
    let refusals = results.cells.iter().filter_map(|cell| match &cell.attach {
        Attach::Refused { refusal, expected: false, .. } => Some(FailureItem {
            what: cell.cell.clone(),
            why: labels::refusal(refusal),
            excerpt: [Some(refusal.message.clone()), refusal.verifier.as_deref().map(bpfassay_tool::helper::named)]
                .into_iter()
                .flatten()
                .collect(),
            log: None,
        }),
        _ => None,
    });
    let boots = results.boots.iter().filter_map(|boot| {
        let ended_by = boot.failure.as_ref()?;
        Some(failure(format!("guest of {}, boot {}", boot.block, boot.boot), ended_by))
    });
    runs.chain(refusals).chain(boots).collect()
}

/// Formats the command that repeats the study.
fn repeat(results: &Results) -> String {
    let narrowing = &results.plan.narrowing;
    let mut args = vec!["bpfassay".to_owned(), "run".to_owned(), results.plan.study.name.clone()];
    let mut option = |name: &str, value: String| args.extend([name.to_owned(), value]);
    for arch in &narrowing.archs {
        option("--arch", arch.to_string());
    }
    for kernel in &narrowing.kernels {
        option("--kernel", kernel.clone());
    }
    for probe in &narrowing.probes {
        option("--probe", probe.to_string());
    }
    for cell in &narrowing.cells {
        option("--cell", cell.clone());
    }
    if let Some(replicates) = narrowing.replicates {
        option("--replicates", replicates.to_string());
    }
    if let Some(until) = narrowing.until {
        option("--until", until.to_string());
    }
    if let Some(model) = &results.plan.study.model {
        option("--model", model.name.clone());
    }
    if let Some(shard) = results.plan.shard {
        option("--shard", shard.to_string());
    }
    args.iter().map(|argument| quoted(argument)).collect::<Vec<_>>().join(" ")
}

/// Quotes `argument` for a shell's command line: readers can copy it.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        return argument.to_owned();
    }
    format!("'{}'", plain::line(argument).replace('\'', r"'\''"))
}

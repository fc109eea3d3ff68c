// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report as one HTML file that needs no other file, no network and no scripts.
//!
//! The page has the terminal's tables, plots, failures with excerpts of their logs, and the command
//! to repeat the study.

mod code_coverage;
mod comparison;
mod escape;
mod figures;
mod matrix;
mod plot;
mod standalone;

use askama::Template;
use bpfassay_stats::Verdict;
use bpfassay_tool::finding::{Kind, KindAdvice};

pub(super) use self::standalone::FORMAT as SVG_FORMAT;
use self::{
    code_coverage::{Covered, covered},
    figures::Plots,
    matrix::{Matrix, matrix},
};
pub use self::{comparison::comparison_html, standalone::figure_svg};
use super::{
    failure_events::FailureEvents,
    finished as escaped,
    format::ReportFormat,
    head::{Head, head},
    kernel_features, plain,
    sections::{self, sections, tools},
    table::TextTable,
};
use crate::labels;
use bpfassay_results::{Attach, Outcome, Results, fingerprint, outcome::RunFailure};

#[derive(Template)]
#[template(path = "report.html")]
struct ReportPage<'a> {
    results: &'a Results,
    title: String,
    description: &'a str,
    head: Head,
    counts: Vec<SummaryCount>,
    matrix: Option<Matrix>,
    tables: Vec<TextTable>,
    has_paths: bool,
    plots: Vec<Plots>,
    coverage: Option<Covered>,
    findings: Vec<FindingItem>,
    failures: Vec<FailureItem>,
    fingerprint: String,
    repeat: String,
    style: &'static str,
}

const STYLE: &str = include_str!("../../templates/report.css");

/// A number in the summary of the report.
struct SummaryCount {
    number: usize,
    what: &'static str,
    /// The CSS class: `good`, `bad`, `open`, or empty.
    class: &'static str,
}

impl SummaryCount {
    /// Makes a count; a count of 0 has no colour.
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
    about: "One page with tables and plots that needs nothing else",
    file: Some("report.html"),
    render: |results, _| Ok(html(results)?.into()),
};

/// Renders `results` as an HTML page.
///
/// # Errors
/// [`std::fmt::Error`], which writing into memory never causes.
pub fn html(results: &Results) -> Result<String, std::fmt::Error> {
    let study = &results.plan.study;
    let tables = sections(results).flat_map(|section| match section {
        sections::ReportSection::Table(table) => vec![table],
        sections::ReportSection::Matrix(page) => kernel_features::tables(&page),
    });
    let tables: Vec<TextTable> = tables.collect();
    finished(&ReportPage {
        results,
        title: format!("{}: bpfassay report", results.plan.title()),
        description: study.description.trim(),
        head: head(results),
        counts: counts(results),
        matrix: matrix(results),
        has_paths: tables.iter().any(|table| table.anchor == Some("paths")),
        tables,
        plots: figures::plots(results),
        coverage: covered(results),
        findings: tools::found(results).into_iter().map(FindingItem::new).collect(),
        failures: failures(results),
        fingerprint: fingerprint(results.runs.iter().map(|run| &run.record)),
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
    // The errors are those of writing. A template with an unknown name would not compile.
    let page = page.render().map_err(|_| std::fmt::Error)?;
    Ok(escaped(page))
}

fn counts(results: &Results) -> Vec<SummaryCount> {
    let gates = |verdict| results.gates.iter().filter(|gate| gate.verdict == verdict).count();
    let measured = |run: &&bpfassay_results::RunResult| matches!(run.record.outcome, Outcome::Measured(_));
    let surprises = results.cells.iter().filter(|cell| cell.attach.is_surprise()).count()
        + results.kernel_features.as_ref().map_or(0, |matrix| matrix.surprises().count());
    let mut counts = Vec::new();
    if !results.plan.study.gates.is_empty() && results.plan.shard.is_none() {
        counts.extend([
            SummaryCount::new(gates(Verdict::Pass), "gates passed", "good"),
            SummaryCount::new(gates(Verdict::Regression), "regressions", "bad"),
            SummaryCount::new(gates(Verdict::Inconclusive), "gates inconclusive", "open"),
        ]);
    }
    let failed: u32 = results.cells.iter().map(|cell| cell.runs.failed).sum();
    counts.extend([SummaryCount::new(results.plan.targets().len(), "targets", "")]);
    if let Some(matrix) = &results.kernel_features {
        counts.extend([
            SummaryCount::new(matrix.configurations.len(), "probe configurations", ""),
            SummaryCount::new(matrix.features.len(), "features", ""),
        ]);
    }
    counts.extend([
        SummaryCount::new(results.cells.len(), "cells", ""),
        SummaryCount::new(results.runs.iter().filter(measured).count(), "runs measured", ""),
        SummaryCount::new(usize::try_from(failed).unwrap_or(usize::MAX), "runs failed", "bad"),
        SummaryCount::new(surprises, "surprises", "bad"),
    ]);
    counts
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

/// Quotes `argument` for a shell's command line: readers may copy it.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        return argument.to_owned();
    }
    format!("'{}'", plain::line(argument).replace('\'', r"'\''"))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A comparison of two results as a table. Changes are listed one by one; everything else is
//! counted.

pub(super) mod direct;
mod programs;

use std::collections::BTreeSet;

use bpfassay_stats::gate_decision::Change;
use bpfassay_study::Clock;

use super::{
    Style, finished,
    head::when,
    in_words::sentences,
    markdown,
    table::{CellNames, Remarks, TextTable},
    text,
};
use crate::{
    compare::{CellComparison, Comparison, Fate, Filter, Measure, MetricComparison},
    derive::levels::layouts,
    labels,
};
use bpfassay_results::Unit;

/// Renders `comparison` as text; `whole` includes what did not change.
#[must_use]
pub fn comparison_text(comparison: &Comparison, style: Style, whole: bool) -> String {
    finished(tables(comparison, whole).into_iter().map(|table| text::one(table, style)).collect::<Vec<_>>().join("\n"))
}

/// Renders `comparison` as Markdown; `whole` includes what did not change.
#[must_use]
pub fn comparison_markdown(comparison: &Comparison, whole: bool) -> String {
    finished(tables(comparison, whole).iter().map(markdown::one).collect::<Vec<_>>().join("\n"))
}

/// Creates the tables of `comparison`: ratios, then direct costs and programs that differ, if there
/// are some.
pub(super) fn tables(comparison: &Comparison, whole: bool) -> Vec<TextTable> {
    let mut tables = vec![table(comparison, whole)];
    tables.extend(direct::tables(comparison, whole));
    tables.extend(programs::table(comparison));
    tables
}

fn table(comparison: &Comparison, whole: bool) -> TextTable {
    let mut remarks = Remarks::default();
    let cell_names = CellNames::of_comparison(comparison);
    let place = |cell: &CellComparison| cell_names.text(cell.target(), &cell.case, &cell.file_system);
    let mut rows = Vec::new();
    for cell in &comparison.cells {
        let mut row = |change: &str, metric: &str, ratio: String, cost: String, bytes: String| {
            rows.push((
                cell.is_regression(),
                vec![change.to_owned(), place(cell), cell.under_test.clone(), metric.to_owned(), ratio, cost, bytes],
            ));
        };
        let none = String::new;
        match &cell.fate {
            Fate::New => row("new", "", none(), none(), none()),
            Fate::Gone => row("gone", "", none(), none(), none()),
            Fate::Broken { reason } => row("BROKEN", "", remarks.mark(reason.clone()), none(), none()),
            Fate::Mended { reason } => row("mended", "", remarks.mark(format!("before: {reason}")), none(), none()),
            Fate::Neither { .. } => {}
            Fate::Compared => {
                for metric in &cell.metrics {
                    let shown = whole || metric.miscounts() || !matches!(metric.change, Change::Equivalent);
                    if shown {
                        let ratio = match metric.ratio.value() {
                            Some(ratio) => format!("{} {}", metric.measure, labels::change(&ratio.estimate)),
                            None => remarks.mark(metric.ratio.reason().unwrap_or(labels::NONE).to_owned()),
                        };
                        row(change(metric), &metric.metric, ratio, cost(metric), bytes(metric));
                    }
                }
            }
        }
        for (what, findings) in [
            ("NEW PITFALL", &cell.findings_new),
            ("pitfall gone", &cell.findings_gone),
            ("NEW FINDING", &cell.faults_new),
            ("finding gone", &cell.faults_gone),
        ] {
            for finding in findings {
                row(what, "", finding.clone(), String::new(), String::new());
            }
        }
    }
    // Regressions come first; otherwise the cells keep their order.
    rows.sort_by_key(|(is_regression, _)| !is_regression);
    let [base, new] = sides(comparison);
    let mut title = vec![
        format!("base: {base}"),
        format!("new: {new}"),
        format!("new against base, clock {}: {}", comparison.clock, ChangeCounts::of(comparison)),
    ];
    title.extend(sentences(comparison));
    TextTable {
        title,
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        warnings: warnings(comparison),
        remarks: remarks.0,
        legend: legend(comparison),
        ..TextTable::new("", ["change", "target", "probe", "metric", "new / base", "instructions/call", "byte error"])
    }
}

/// Describes the base and the new results: `results/latest, quick of 2026-11-26 03:24 UTC`.
pub(super) fn sides(comparison: &Comparison) -> [String; 2] {
    let Comparison { studies, names, started_unix_ms, .. } = comparison;
    [0, 1].map(|side| {
        let study = format!("{} of {}", studies[side], when(started_unix_ms[side]));
        match names[side].as_str() {
            "" => study,
            name => format!("{name}, {study}"),
        }
    })
}

/// Returns other differences, and what the comparison leaves out.
fn warnings(comparison: &Comparison) -> Vec<String> {
    let Filter { probes, metrics, accesses } = &comparison.filter;
    let accesses: Vec<String> = accesses.iter().map(ToString::to_string).collect();
    let named = [("probe", probes), ("metric", metrics), ("access", &accesses)];
    let named = named.into_iter().filter(|(_, names)| !names.is_empty());
    let named: Vec<String> = named.map(|(what, names)| format!("{what} {}", names.join(", "))).collect();
    let filter = (!named.is_empty()).then(|| format!("only {}: nothing else was compared", named.join("; ")));
    comparison.notes.iter().cloned().chain(filter).collect()
}

fn legend(comparison: &Comparison) -> Vec<String> {
    let mut legend = vec![
        "new / base: above 1 is slower; time: of the baseline for the same bytes; overhead: of the tool over the baseline of its own results.".to_owned(),
        format!(
            "slower, faster: beyond {} either way is shown, at error rate {} kept over all cells; alike: shown to be within; inconclusive: neither.",
            comparison.margin, comparison.error_rate
        ),
    ];
    if comparison.cells.iter().flat_map(|cell| &cell.metrics).any(|metric| metric.measure == Measure::Time) {
        legend.push(
            "baseline slower, faster: the kernel, or what else differs; no tool runs in it, and it is no regression."
                .to_owned(),
        );
    }
    let ratios = || comparison.cells.iter().flat_map(|cell| &cell.metrics).filter_map(|metric| metric.ratio.value());
    if ratios().any(|ratio| ratio.paired) {
        legend.push("runs of the same seed, replicate and round were compared with each other.".to_owned());
    }
    let pooled: BTreeSet<usize> =
        ratios().filter_map(|ratio| ratio.pooled).map(|pooled| pooled.cells).filter(|cells| *cells > 1).collect();
    if let (Some(fewest), Some(most)) = (pooled.first(), pooled.last()) {
        let cells = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
        legend.push(format!(
            "few pairs each: intervals and claims take the variances of all cells with the same metric into account (moderated t, {cells} cells)."
        ));
    }
    let has_layout = |metric: &&MetricComparison| {
        metric.ratio.value().and_then(|ratio| ratio.pooled).is_some_and(|pooled| pooled.layout > 0.0)
    };
    let with_layout = comparison.cells.iter().flat_map(|cell| &cell.metrics).filter(has_layout);
    if let Some(layouts) = layouts(with_layout.map(|metric| &*metric.metric)) {
        legend.push(format!(
            "one boot each: unless they are the same to the instruction, intervals and claims have the declared layout terms in them, in either result {layouts}."
        ));
    }
    if ratios().any(|ratio| ratio.unit == Unit::Rounds && !ratio.paired) {
        legend.push("one boot is one observation: no difference and no likeness is claimed of it; run two boots or more (`--replicates`).".to_owned());
    }
    if comparison.clock == Clock::Instructions {
        legend.push("the clock counts instructions, not cycles: cache misses and traps are not priced.".to_owned());
    }
    legend
}

pub(super) fn change(metric: &MetricComparison) -> &'static str {
    match metric.change {
        _ if metric.miscounts() => "MISCOUNTS",
        Change::Increase if metric.measure == Measure::Time => "baseline slower",
        Change::Decrease if metric.measure == Measure::Time => "baseline faster",
        Change::Increase => "SLOWER",
        Change::Decrease => "faster",
        Change::Equivalent => "alike",
        Change::Inconclusive => "inconclusive",
    }
}

/// Formats costs: `548.5 → 561.0`.
fn cost(metric: &MetricComparison) -> String {
    match metric.instructions_per_call {
        [Some(base), Some(new)] => format!("{base:.1} → {new:.1}"),
        _ => String::new(),
    }
}

fn bytes(metric: &MetricComparison) -> String {
    let [base, new] = metric.byte_error.each_ref().map(labels::byte_error);
    match (base, new) {
        (Some(base), Some(new)) if base == new => base,
        (Some(base), Some(new)) => format!("{base} → {new}"),
        _ => String::new(),
    }
}

/// The numbers of cells and metrics by outcome, with separate numbers for slower and faster
/// baselines.
#[derive(Default)]
pub(super) struct ChangeCounts {
    pub(super) broken: u32,
    pub(super) slower: u32,
    pub(super) faster: u32,
    pub(super) alike: u32,
    pub(super) inconclusive: u32,
    pub(super) miscounts: u32,
    pub(super) neither: u32,
    pub(super) baseline_slower: u32,
    pub(super) baseline_faster: u32,
    pub(super) pitfalls: u32,
    pub(super) findings: u32,
}

impl ChangeCounts {
    pub(super) fn of(comparison: &Comparison) -> Self {
        let mut counts = Self::default();
        for cell in &comparison.cells {
            let len = |names: &Vec<String>| u32::try_from(names.len()).unwrap_or(u32::MAX);
            counts.pitfalls += len(&cell.findings_new);
            counts.findings += len(&cell.faults_new);
            match &cell.fate {
                Fate::Broken { .. } => counts.broken += 1,
                Fate::Neither { .. } => counts.neither += 1,
                Fate::Compared => cell.metrics.iter().for_each(|metric| counts.add(metric)),
                Fate::New | Fate::Gone | Fate::Mended { .. } => {}
            }
        }
        counts
    }

    fn add(&mut self, metric: &MetricComparison) {
        self.miscounts += u32::from(metric.miscounts());
        let count = match metric.change {
            Change::Increase if metric.measure == Measure::Time => &mut self.baseline_slower,
            Change::Decrease if metric.measure == Measure::Time => &mut self.baseline_faster,
            Change::Increase => &mut self.slower,
            Change::Decrease => &mut self.faster,
            Change::Equivalent => &mut self.alike,
            Change::Inconclusive => &mut self.inconclusive,
        };
        *count += 1;
    }
}

impl std::fmt::Display for ChangeCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} slower, {} faster, {} alike, {} inconclusive",
            self.slower, self.faster, self.alike, self.inconclusive
        )?;
        for (number, what) in [
            (self.broken, "broken"),
            (self.miscounts, "miscount"),
            (self.pitfalls, "new pitfalls"),
            (self.findings, "new findings"),
            (self.baseline_slower, "baseline slower"),
            (self.baseline_faster, "baseline faster"),
            (self.neither, "cells measured in neither"),
        ] {
            if number > 0 {
                write!(f, ", {number} {what}")?;
            }
        }
        Ok(())
    }
}

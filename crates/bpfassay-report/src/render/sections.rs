// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of a report: one list of sections for text, Markdown and HTML.

mod bill;
mod calls;
mod capabilities;
mod cells;
mod cost;
mod direct;
mod gates;
mod io_paths;
mod loads;
mod maps;
mod mounts;
mod nodes;
mod pitfalls;
mod priced;
mod program_count;
mod program_events;
mod run_times;
pub(super) mod tools;

use super::{
    kernel_features::{self, FeatureMatrix},
    study,
    table::TextTable,
};
use bpfassay_results::Results;

pub(super) enum ReportSection {
    Table(TextTable),
    /// Features by targets; each format has its own layout.
    Matrix(FeatureMatrix),
}

/// Functions that make the sections from results, in the order of a report. A function returns
/// nothing if the results lack its subject.
const SECTIONS: &[fn(&Results) -> Vec<ReportSection>] = &[
    |results| of_tables(gates::table(results)),
    |results| of_cells(results, cells::table),
    |results| of_tables(nodes::table(results)),
    |results| of_cells(results, direct::table),
    |results| of_cells(results, priced::table),
    |results| of_tables(bill::tables(results)),
    |results| of_cells(results, calls::table),
    |results| of_cells(results, cost::table),
    |results| of_cells(results, run_times::table),
    |results| of_cells(results, program_count::table),
    |results| of_cells(results, program_events::table),
    |results| of_tables(io_paths::tables(results)),
    |results| of_tables(mounts::table(results)),
    |results| kernel_features::page(results).into_iter().map(ReportSection::Matrix).collect(),
    |results| of_tables(loads::table(results)),
    |results| of_tables(capabilities::table(results)),
    |results| of_tables(tools::figures(results)),
    |results| of_tables(tools::findings(results)),
    |results| of_tables(maps::table(results)),
    |results| of_tables(pitfalls::table(results)),
];

fn of_tables(tables: impl IntoIterator<Item = TextTable>) -> Vec<ReportSection> {
    tables.into_iter().map(ReportSection::Table).collect()
}

/// Creates a section that only workloads with metrics have.
fn of_cells(results: &Results, table: fn(&Results) -> Option<TextTable>) -> Vec<ReportSection> {
    if study::has_figures(results) { of_tables(table(results)) } else { Vec::new() }
}

pub(super) fn sections(results: &Results) -> impl Iterator<Item = ReportSection> {
    SECTIONS.iter().flat_map(move |section| section(results))
}

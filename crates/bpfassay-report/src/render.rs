// SPDX-License-Identifier: MIT OR Apache-2.0
//! Renders results for people and other programs: text, Markdown, HTML, JUnit, KTAP, annotations,
//! OpenMetrics, CSV, collapsed stacks, a profile, a badge. Pure functions of
//! [`bpfassay_results::Results`].

mod attach;
mod badge;
mod bencher;
mod cases;
mod collapsed;
mod columns;
mod compare;
mod csv;
mod failure_events;
mod format;
mod front;
mod github;
mod head;
mod html;
mod in_words;
#[cfg_attr(not(feature = "junit"), path = "render/no_junit.rs")]
mod junit;
mod kernel_features;
mod ktap;
mod lcov;
mod markdown;
mod openmetrics;
mod pprof;
mod program_code;
mod result_summary;
mod screen;
mod sections;
mod study;
mod table;
mod text;
mod tool_bill;
mod trend;
pub mod wrap;

use std::borrow::Cow;

pub use badge::badge;
pub use bencher::bencher;
pub use collapsed::collapsed;
pub use compare::{comparison_markdown, comparison_text};
pub use csv::csv;
pub use format::{FormatError, FormatOptions, NoFigure, Rendered, ReportFormat};
pub use github::{Github, github};
pub use html::{code_coverage_file, code_coverage_html, comparison_html, figure_svg, html};
pub use junit::{comparison_junit, junit};
pub use ktap::ktap;
pub use lcov::lcov;
pub use markdown::markdown;
pub use openmetrics::openmetrics;
pub use pprof::pprof;
pub use screen::{Screen, screen};
pub use text::{Style, text};
pub use trend::{trend_markdown, trend_text};

use bpfassay_results::plain;

/// The formats of a report, the default first. A new format is a file and its line here.
pub const FORMATS: &[ReportFormat] = &[
    html::FORMAT,
    text::FORMAT,
    markdown::FORMAT,
    github::FORMAT,
    junit::FORMAT,
    ktap::FORMAT,
    badge::FORMAT,
    bencher::FORMAT,
    openmetrics::FORMAT,
    csv::FORMAT,
    collapsed::FORMAT,
    pprof::FORMAT,
    lcov::FORMAT,
    html::SVG_FORMAT,
];

/// Formats a number of things: `1 run`, `2 runs`.
#[must_use]
pub fn count(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

/// Escapes what is left in `form`. Each format escapes every foreign text by its own rules; this
/// catches what a format forgot.
fn finished(form: String) -> String {
    match plain::text(&form) {
        Cow::Borrowed(_) => form,
        Cow::Owned(escaped) => escaped,
    }
}

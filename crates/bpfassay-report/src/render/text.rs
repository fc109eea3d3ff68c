// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report for the terminal.

use comfy_table::{ContentArrangement, LineStyle, TableStyle};

use super::{
    columns, finished,
    format::{FormatOptions, ReportFormat},
    head, kernel_features,
    plain::line,
    sections::{ReportSection, sections},
    table::TextTable,
    wrap::push_wrapped,
};
use bpfassay_results::Results;

pub(super) const FORMAT: ReportFormat = ReportFormat {
    name: "text",
    about: "All tables, for terminals",
    file: None,
    render: |results, FormatOptions { width, .. }| Ok(text(results, Style { width }).into()),
};

/// The layout of tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// Width of the terminal in columns, which no line exceeds. A row takes several lines if it
    /// does not fit into one. Nothing is wrapped without a terminal (`None`), so that the text can
    /// be searched and compared.
    pub width: Option<u16>,
}

/// A table style with a single line, below the header.
const PLAIN: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('-').junction('-'));

/// Renders `results` as text.
#[must_use]
pub fn text(results: &Results, style: Style) -> String {
    let texts = sections(results).map(|section| match section {
        ReportSection::Table(table) => one(table, style),
        ReportSection::Matrix(page) => kernel_features::text(&page, style.width),
    });
    let texts: Vec<String> = std::iter::once(head(results, style)).chain(texts).collect();
    finished(texts.join("\n"))
}

/// Renders the part above the tables.
fn head(results: &Results, style: Style) -> String {
    let head = head::head(results);
    let mut text = String::new();
    for (index, conclusion) in head.conclusion.iter().enumerate() {
        let indent = if index == 0 { "" } else { "  " };
        push_wrapped(&mut text, &format!("{indent}{}", line(conclusion)), style.width);
    }
    for fact in head.facts() {
        push_wrapped(&mut text, &line(&fact), style.width);
    }
    text
}

/// Renders one table with the texts above and below it.
pub(super) fn one(content: TextTable, style: Style) -> String {
    let mut text = String::new();
    for title in &content.title {
        push_wrapped(&mut text, &line(title), style.width);
    }
    // A header without rows would only repeat the title.
    if !content.rows.is_empty() {
        for row in rows(&content.columns, content.rows, style) {
            text.push_str(row.trim_end());
            text.push('\n');
        }
    }
    for warning in &content.warnings {
        push_wrapped(&mut text, &format!("! {}", line(warning)), style.width);
    }
    for (index, remark) in content.remarks.iter().enumerate() {
        push_wrapped(&mut text, &format!("[{}] {}", index + 1, line(remark)), style.width);
    }
    for legend in &content.legend {
        push_wrapped(&mut text, &format!("  {}", line(legend)), style.width);
    }
    text
}

/// Renders the rows of a table, one line each if they fit or if there is no terminal.
fn rows(columns: &[String], rows: Vec<Vec<String>>, Style { width }: Style) -> Vec<String> {
    // A second copy of a table of 15,000 cells would take tens of megabytes.
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|row| row.into_iter().map(|cell| line(&cell).into_owned()).collect()).collect();
    let head: Vec<String> = columns.iter().map(|column| line(column).into_owned()).collect();
    if let Some(width) = width {
        return columns::lines(&head, &rows, usize::from(width));
    }
    let mut table = comfy_table::Table::new();
    table.load_style(PLAIN).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(&head);
    table.add_rows(rows);
    table.lines().collect()
}

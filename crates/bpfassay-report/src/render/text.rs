// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report for the terminal.

use comfy_table::{ColumnConstraint, ContentArrangement, LineStyle, TableStyle, Width, presets};

use super::{
    finished,
    format::{Format, Options},
    kernel_features,
    plain::line,
    sections::{self, Section, sections},
    table::Table,
    wrap::push_wrapped,
};
use bpfassay_results::Results;

/// See [`super::FORMATS`].
pub(super) const FORMAT: Format = Format {
    name: "text",
    about: "The tables of `run`, for terminals",
    file: None,
    render: |results, Options { width, .. }| Ok(text(results, Style { width }).into()),
};

/// How the table looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// Width of the terminal in columns; `None` where there is none: nothing is wrapped, and there are no lines but one
    /// below the head, so that the text can be searched and compared. So it is, too, where the terminal is so narrow
    /// that words in the table would have to be broken.
    pub width: Option<u16>,
}

/// No lines but one below the head.
const PLAIN: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('-').junction('-'));

/// `results` as text.
#[must_use]
pub fn text(results: &Results, style: Style) -> String {
    let texts = sections(results).map(|section| match section {
        Section::Table(table) => one(table, style),
        Section::Matrix(page) => kernel_features::text(&page, style.width),
    });
    finished(texts.collect::<Vec<_>>().join("\n"))
}

/// The rows of `results` in the table of cells, without what stands above and below them: for results of which more is to come. Empty
/// where there are none.
#[must_use]
pub fn provisional(results: &Results, style: Style) -> String {
    let rows = sections::cells_alone(results).filter(|table| !table.rows.is_empty());
    rows.map(|table| finished(one(table, style))).unwrap_or_default()
}

/// One table with what stands above and below it.
pub(super) fn one(content: Table, style: Style) -> String {
    let has_rows = !content.rows.is_empty();
    // Of 15,000 cells a second copy of the table would be tens of megabytes.
    let rows: Vec<Vec<String>> =
        content.rows.into_iter().map(|row| row.into_iter().map(|cell| line(&cell).into_owned()).collect()).collect();
    let columns: Vec<_> = content.columns.iter().map(|column| line(column)).collect();
    let longest = longest_words(columns.iter().map(AsRef::as_ref), &rows);
    let fit = style.width.and_then(|width| fit(width, &longest));
    let width = fit.and(style.width);
    let mut table = comfy_table::Table::new();
    // The caller describes the terminal; comfy-table must not look for itself.
    table.force_no_tty();
    match width {
        Some(width) => {
            table.load_style(presets::UTF8_FULL_CONDENSED.with_rounded_corners());
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        None => {
            table.load_style(PLAIN).set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    table.set_header(&columns);
    table.add_rows(rows);
    if let Some(padding) = fit {
        for (column, &word) in table.column_iter_mut().zip(&longest) {
            column.set_padding((padding, padding));
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(word + 2 * padding)));
        }
    }
    let mut text = String::new();
    for title in &content.title {
        text.push_str(&line(title));
        text.push('\n');
    }
    // A head without rows would say nothing that the title does not.
    if has_rows {
        for row in table.lines() {
            text.push_str(row.trim_end());
            text.push('\n');
        }
    }
    for warning in &content.warnings {
        push_wrapped(&mut text, &format!("! {}", line(warning)), width);
    }
    for (index, remark) in content.remarks.iter().enumerate() {
        push_wrapped(&mut text, &format!("[{}] {}", index + 1, line(remark)), width);
    }
    for legend in &content.legend {
        push_wrapped(&mut text, &format!("  {}", line(legend)), width);
    }
    text
}

/// The length of the longest word of each column.
fn longest_words<'a>(head: impl Iterator<Item = &'a str>, rows: &[Vec<String>]) -> Vec<u16> {
    let longest = |cell: &str| cell.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
    head.enumerate()
        .map(|(index, name)| {
            let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| longest(cell));
            u16::try_from(cells.chain([longest(name)]).max().unwrap_or(0)).unwrap_or(u16::MAX)
        })
        .collect()
}

/// How many spaces stand on either side of a cell, so that a table of such words fits into `width`: 1, or 0 where that is
/// too much; `None` where it does not fit at all.
fn fit(width: u16, words: &[u16]) -> Option<u16> {
    [1, 0].into_iter().find(|&padding| {
        let columns = words.iter().map(|&word| usize::from(word) + 2 * usize::from(padding) + 1);
        columns.sum::<usize>() < usize::from(width)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_fitted_as_long_as_no_word_is_broken() {
        let rows = [vec!["x86_64 6.12".to_owned(), "0 requested".to_owned()]];
        let longest = longest_words(["target", "byte error"].into_iter(), &rows);
        assert_eq!(longest, [6, 9]);
        // 15 letters, 3 lines, and a space on either side of both.
        assert_eq!(fit(22, &longest), Some(1));
        assert_eq!(fit(21, &longest), Some(0));
        assert_eq!(fit(18, &longest), Some(0));
        assert_eq!(fit(17, &longest), None);
    }
}

//! The table for the terminal.

use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle, presets};

use super::rows;
use crate::Results;

/// How the table looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// Width of the terminal in columns; `None` where there is none: nothing is wrapped, and there are no lines but one
    /// below the head, so that the text can be searched and compared. So it is, too, where the terminal is too narrow for
    /// a table (below 60 columns): its own wrapping is easier to read than columns of single letters.
    pub width: Option<u16>,
}

/// Width below which the table is not fitted to the terminal.
const NARROWEST: u16 = 60;

/// No lines but one below the head.
const PLAIN: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('-').junction('-'));

/// `results` as text.
#[must_use]
pub fn text(results: &Results, style: Style) -> String {
    let content = rows::table(results);
    let width = style.width.filter(|&width| width >= NARROWEST);
    let mut table = Table::new();
    // The caller says what the terminal is like; comfy-table must not look for itself.
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
    table.set_header(&content.columns);
    for row in &content.rows {
        table.add_row(row.iter().map(|cell| plain(cell)));
    }
    let mut text = format!("{}\n", content.title);
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    for warning in &content.warnings {
        push_wrapped(&mut text, &format!("! {}", plain(warning)), width);
    }
    for (index, remark) in content.remarks.iter().enumerate() {
        push_wrapped(&mut text, &format!("[{}] {}", index + 1, plain(remark)), width);
    }
    for line in &content.legend {
        push_wrapped(&mut text, &format!("  {line}"), width);
    }
    text
}

/// Adds `line`, broken between words where it is longer than `width`; what follows the first line is indented.
fn push_wrapped(text: &mut String, line: &str, width: Option<u16>) {
    let width = width.map_or(usize::MAX, usize::from);
    let (first, rest) = line.split_at(line.len() - line.trim_start().len());
    text.push_str(first);
    let mut column = first.len();
    for (index, word) in rest.split(' ').enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length > width {
            text.push_str("\n    ");
            column = 4;
        } else if index > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
}

/// `text` on one line and without control characters: kernels, guests and libraries wrote some of it, and a terminal obeys
/// escape sequences.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words_where_there_is_a_width() {
        let wrapped = |line: &str, width| {
            let mut text = String::new();
            push_wrapped(&mut text, line, width);
            text
        };
        assert_eq!(wrapped("  one two three", None), "  one two three\n");
        assert_eq!(wrapped("  one two three", Some(10)), "  one two\n    three\n");
        assert_eq!(wrapped("! incomprehensible x", Some(10)), "!\n    incomprehensible\n    x\n");
        assert_eq!(wrapped("", Some(10)), "\n");
    }
}

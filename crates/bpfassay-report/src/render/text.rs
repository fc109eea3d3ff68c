//! The table for the terminal.

use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle, presets};

use super::rows;
use crate::Results;

/// How the table looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// Width of the terminal in columns; `None` where there is none: nothing is wrapped, and there are no lines but one
    /// below the head, so that the text can be searched and compared.
    pub width: Option<u16>,
}

/// No lines but one below the head.
const PLAIN: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('-').junction('-'));

/// `results` as text.
#[must_use]
pub fn text(results: &Results, style: Style) -> String {
    let content = rows::table(results);
    let mut table = Table::new();
    // The caller says what the terminal is like; comfy-table must not look for itself.
    table.force_no_tty();
    match style.width {
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
        text.push_str(&format!("! {}\n", plain(warning)));
    }
    for (index, remark) in content.remarks.iter().enumerate() {
        text.push_str(&format!("[{}] {}\n", index + 1, plain(remark)));
    }
    for line in &content.legend {
        text.push_str(&format!("  {line}\n"));
    }
    text
}

/// `text` on one line and without control characters: kernels, guests and libraries wrote some of it, and a terminal obeys
/// escape sequences.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

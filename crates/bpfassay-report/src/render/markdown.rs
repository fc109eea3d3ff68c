//! The table as Markdown (GitHub's tables).

use super::{
    capabilities,
    rows::{self, Table},
};
use crate::Results;

/// `results` as Markdown.
#[must_use]
pub fn markdown(results: &Results) -> String {
    let told = |tables: Vec<Table>| tables.into_iter().map(|content| one(&content));
    let texts = told(rows::leading(results)).chain(capabilities::markdown(results));
    texts.chain(told(rows::closing(results))).collect::<Vec<_>>().join("\n")
}

/// One table with what stands above and below it.
pub(super) fn one(content: &Table) -> String {
    let mut text = format!("{}\n\n", escape(&content.title));
    let mut line = |cells: Vec<String>| text.push_str(&format!("| {} |\n", cells.join(" | ")));
    // A head without rows would say nothing that the title does not.
    if !content.rows.is_empty() {
        line(content.columns.iter().map(|column| escape(column)).collect());
        line(content.columns.iter().map(|_| "---".to_owned()).collect());
    }
    for row in &content.rows {
        line(row.iter().map(|cell| escape(cell)).collect());
    }
    text.push('\n');
    for warning in &content.warnings {
        text.push_str(&format!("**{}**\n\n", escape(warning)));
    }
    for (index, remark) in content.remarks.iter().enumerate() {
        text.push_str(&format!("- \\[{}\\] {}\n", index + 1, escape(remark)));
    }
    for legend in &content.legend {
        text.push_str(&format!("- {}\n", escape(legend)));
    }
    text
}

/// `text` as it is, on one line: nothing in it is markup, whatever a kernel or a guest wrote.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '|' | '`' | '*' | '_' | '~' | '[' | ']' | '<' | '>' | '#' | '&' => escaped.extend(['\\', c]),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report as Markdown (GitHub's tables).

use super::{
    finished,
    format::ReportFormat,
    front::{Front, IN_REPORT},
    head,
    kernel_features::FeatureMatrix,
    plain,
    sections::{ReportSection, sections},
    table::TextTable,
};
use bpfassay_results::Results;

pub(super) const FORMAT: ReportFormat = ReportFormat {
    name: "markdown",
    about: "The tables, for pull requests and job summaries",
    file: None,
    render: |results, _| Ok(markdown(results).into()),
};

/// Renders `results` as Markdown.
#[must_use]
pub fn markdown(results: &Results) -> String {
    let sections = sections(results).map(|section| self::section(&section));
    let texts: Vec<String> = std::iter::once(head(results)).chain(sections).collect();
    finished(texts.join("\n"))
}

/// Renders the part above the tables: the conclusion in bold, the matrix, and facts about the
/// measurement.
pub(super) fn head(results: &Results) -> String {
    let front = Front::of(results, &IN_REPORT);
    let mut text = format!("**{}**\n\n{}\n\n", escape(&front.conclusion), paragraph(&front.title));
    if !front.labels.is_empty() {
        text.push_str(&front_matrix(&front));
    }
    for warning in &front.warnings {
        text.push_str(&format!("**{}**\n\n", escape(warning)));
    }
    let remarks = front.remarks.iter().map(|parts| parts.join(" "));
    let facts = head::facts(results).into_iter().map(|(name, fact)| format!("{name}: {fact}"));
    let lines = front.left_out.into_iter().chain(front.costs).chain(remarks).chain(front.legend);
    for line in lines.chain(front.gates).chain(facts) {
        text.push_str(&format!("- {}\n", escape(&line)));
    }
    text
}

/// Renders the matrix. The first column of each tool has the tool's name.
fn front_matrix(front: &Front) -> String {
    let mut head = vec!["target".to_owned()];
    for block in front.blocks() {
        head.extend(block.iter().enumerate().map(|(index, column)| match column.title.as_str() {
            title if index == 0 && !title.is_empty() => format!("{title}: {}", column.head),
            _ => column.head.clone(),
        }));
    }
    let mut text = format!("{}|{}\n", row(&head), " --- |".repeat(head.len()));
    for (index, label) in front.labels.iter().enumerate() {
        let cells = front.columns.iter().map(|column| column.cells.get(index).map_or("", |cell| &cell.text));
        text.push_str(&row(&[vec![label.join(" ")], cells.map(str::to_owned).collect()].concat()));
    }
    text.push('\n');
    text
}

pub(super) fn section(content: &ReportSection) -> String {
    match content {
        ReportSection::Table(table) => one(table),
        ReportSection::Matrix(page) => matrix(page),
    }
}

fn matrix(page: &FeatureMatrix) -> String {
    let mut text = format!("{}\n\n", paragraph(&page.title));
    for surprise in page.warnings.iter().chain(&page.surprises) {
        text.push_str(&format!("**{}**\n\n", escape(surprise)));
    }
    for block in &page.blocks {
        let head = page.targets.iter().map(|target| escape(&target.to_string())).collect::<Vec<_>>().join(" | ");
        text.push_str(&format!(
            "| {} | {head} |\n|{}\n",
            escape(&block.title),
            " --- |".repeat(page.targets.len() + 1)
        ));
        for row in &block.rows {
            let cells = row.cells.iter().map(|cell| escape(cell)).collect::<Vec<_>>().join(" | ");
            let below: String = row.below().map(|line| format!("<br>{}", escape(line))).collect();
            text.push_str(&format!("| {}{below} | {cells} |\n", escape(&row.label)));
        }
        text.push('\n');
    }
    for (title, names) in &page.folded {
        text.push_str(&format!("- {}: {}\n", escape(title), escape(&names.join(", "))));
    }
    for line in &page.legend {
        text.push_str(&format!("- {}\n", escape(line)));
    }
    text
}

/// Renders one table with the texts above and below it.
pub(super) fn one(content: &TextTable) -> String {
    let mut text = format!("{}\n\n", paragraph(&content.title.join(" ")));
    // A header without rows would only repeat the title.
    if !content.rows.is_empty() {
        text.push_str(&row(&content.columns));
        text.push_str(&format!("|{}\n", " --- |".repeat(content.columns.len())));
    }
    for cells in &content.rows {
        text.push_str(&row(cells));
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

pub(super) fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Escapes the beginning of a line, where more characters are markup than in [`escape`].
pub(super) fn paragraph(text: &str) -> String {
    let mut escaped = escape(text.trim_start());
    let digits = escaped.bytes().take_while(u8::is_ascii_digit).count();
    match escaped.as_bytes().get(digits) {
        Some(b'-' | b'+' | b'=') if digits == 0 => escaped.insert(0, '\\'),
        Some(b'.' | b')') if digits > 0 => escaped.insert(digits, '\\'),
        _ => {}
    }
    escaped
}

/// Escapes `text` and puts it on one line: no text of a kernel or a guest acts as markup, and
/// `@name` notifies no one.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let text = plain::line(text);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' | '|' | '`' | '*' | '_' | '~' | '[' | ']' | '<' | '>' | '#' | '&' | '$' => escaped.extend(['\\', c]),
            // On GitHub, `@name` sends that person a message. A zero-width space ends the name
            // before it begins.
            '@' if rest.peek().is_some_and(|next| next.is_ascii_alphanumeric()) => escaped.push_str("@&#8203;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_a_line_is_no_list_or_heading() {
        let all = ["- a", "+ a", "1. a", "12) a", "===", "  - a", "# a", "> a", "a - b", "1 a"];
        let escaped = ["\\- a", "\\+ a", "1\\. a", "12\\) a", "\\===", "\\- a", "\\# a", "\\> a", "a - b", "1 a"];
        assert_eq!(all.map(paragraph), escaped.map(str::to_owned));
    }

    #[test]
    fn mentions_are_escaped() {
        assert_eq!(escape("@somebody, a@b, @ c"), "@&#8203;somebody, a@&#8203;b, @ c");
    }
}

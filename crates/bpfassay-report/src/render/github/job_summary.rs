// SPDX-License-Identifier: MIT OR Apache-2.0
//! The summary of a job: a summary of the results, and as many tables of the report as fit.

use super::super::{
    markdown::{self, escape},
    plain,
    sections::{ReportSection, sections},
    study,
};
use bpfassay_results::Results;

/// The size of a comment: 65,536 characters. This constant is in bytes, so that the text fits in
/// either unit. A step's summary can have 1 MiB.
pub(super) const MOST_BYTES: usize = 65_536;

/// Room for the list of what was left out.
const FOR_LEFT_OUT: usize = 4096;

/// The longest title in that list, in characters.
const LONGEST_TITLE: usize = 100;

/// Renders the summary of `results`: at most [`MOST_BYTES`] of Markdown.
pub(super) fn summary(results: &Results) -> String {
    let title = plain::excerpt(&study::title(results), LONGEST_TITLE);
    let mut text = format!("### bpfassay: {}\n\n{}", escape(&title), head(results));
    let mut left_out: Vec<String> = Vec::new();
    for section in sections(results) {
        let room = (MOST_BYTES - FOR_LEFT_OUT).saturating_sub(text.len() + 1);
        let whole = markdown::section(&section);
        let fitted = if whole.len() <= room { Some(whole) } else { cut(section, room, &mut left_out) };
        if let Some(fitted) = fitted {
            text.push('\n');
            text.push_str(&fitted);
        }
    }
    push_left_out(&mut text, &left_out);
    text
}

/// Renders the head of the report, or its first line if foreign texts make the head too long.
fn head(results: &Results) -> String {
    let whole = markdown::head(results);
    if whole.len() <= MOST_BYTES / 4 {
        whole
    } else {
        whole.lines().next().map(|line| plain::excerpt(line, LONGEST_TITLE) + "\n").unwrap_or_default()
    }
}

/// Returns as much of `section` as fits into half of `room`, which leaves room for other sections:
/// the first rows, and the remarks to which they refer. If no row fits, it returns `None` and adds
/// the title to `left_out`.
fn cut(section: ReportSection, room: usize, left_out: &mut Vec<String>) -> Option<String> {
    let mut table = match section {
        ReportSection::Table(table) => table,
        ReportSection::Matrix(page) => {
            left_out.push(page.title);
            return None;
        }
    };
    let title = table.last_line().to_owned();
    let notes = [
        keep(&mut table.warnings, room / 8).map(|(gone, all)| note(gone, all, "notes")),
        keep(&mut table.remarks, room / 8).map(|(gone, all)| note(gone, all, "remarks")),
    ];
    table.warnings.extend(notes.into_iter().flatten());
    let rows = std::mem::take(&mut table.rows);
    let total = rows.len();
    // The longest possible frame, with the table's header.
    table.warnings.push(note(total, total, "rows"));
    table.rows.push(vec![String::new(); table.columns.len()]);
    let frame = markdown::one(&table).len();
    table.rows.clear();
    table.warnings.pop();
    table.rows = rows;
    let gone = keep_by(&mut table.rows, (room / 2).saturating_sub(frame), |row| markdown::row(row).len());
    if table.rows.is_empty() {
        left_out.push(title);
        return None;
    }
    table.warnings.extend(gone.map(|(gone, all)| note(gone, all, "rows")));
    Some(markdown::one(&table))
}

/// Keeps the first of `lines` that fit into `room` bytes together. If some are removed, returns the
/// number removed and the total.
fn keep(lines: &mut Vec<String>, room: usize) -> Option<(usize, usize)> {
    // The surrounding markup: a number, emphasis, an empty line.
    keep_by(lines, room, |line| escape(line).len() + 16)
}

fn keep_by<T>(all: &mut Vec<T>, room: usize, length: impl Fn(&T) -> usize) -> Option<(usize, usize)> {
    let count = all.len();
    let mut used = 0_usize;
    let is_within = |one: &&T| {
        used = used.saturating_add(length(one));
        used <= room
    };
    let kept = all.iter().take_while(is_within).count();
    all.truncate(kept);
    (kept < count).then_some((count - kept, count))
}

fn note(missing: usize, total: usize, what: &str) -> String {
    format!("{missing} of {total} {what} are left out here: the report has them")
}

fn push_left_out(text: &mut String, left_out: &[String]) {
    if left_out.is_empty() {
        return;
    }
    text.push_str("\nLeft out for want of room; the report has them:\n\n");
    for (index, title) in left_out.iter().enumerate() {
        let line = format!("- {}\n", escape(&plain::excerpt(title, LONGEST_TITLE)));
        let more = format!("- and {} more tables\n", left_out.len() - index);
        if text.len() + line.len() + more.len() > MOST_BYTES {
            text.push_str(&more);
            return;
        }
        text.push_str(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::table::TextTable;

    fn table(rows: usize, remarks: usize) -> ReportSection {
        let line = |index: usize| format!("{index} {}", "x".repeat(80));
        ReportSection::Table(TextTable {
            rows: (0..rows).map(|index| vec![line(index)]).collect(),
            remarks: (0..remarks).map(line).collect(),
            ..TextTable::new("figures", ["column"])
        })
    }

    #[test]
    fn a_table_keeps_its_first_rows_and_remarks_and_says_what_is_gone() {
        let mut left_out = Vec::new();
        let room = 8000;
        let text = cut(table(100, 100), room, &mut left_out).unwrap();
        assert!(text.len() <= room / 2 && text.contains("| 0 xxx") && text.contains("\\[1\\] 0 xxx"), "{text}");
        let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains("xxx")).count();
        let remarks = text.lines().filter(|line| line.starts_with("- \\[")).count();
        assert!(rows > 10 && remarks > 5, "{rows} rows, {remarks} remarks");
        assert!(text.contains(&format!("**{} of 100 rows are left out here: the report has them**", 100 - rows)));
        assert!(text.contains(&format!("**{} of 100 remarks are left out here", 100 - remarks)), "{text}");
        // If no row fits, the table is named.
        assert!(left_out.is_empty() && cut(table(100, 0), 300, &mut left_out).is_none());
        assert_eq!(left_out, ["figures"]);
    }

    #[test]
    fn what_was_left_out_is_named_as_far_as_there_is_room() {
        let titles: Vec<String> = (0..1000).map(|index| format!("{index} {}", "t".repeat(200))).collect();
        let mut text = "x".repeat(MOST_BYTES - FOR_LEFT_OUT);
        push_left_out(&mut text, &titles);
        let shown = text.matches("\n- ").count() - 1;
        assert!(text.len() <= MOST_BYTES && shown > 20, "{} bytes, {shown} titles", text.len());
        assert!(text.ends_with(&format!("\n- and {} more tables\n", 1000 - shown)), "{text}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lays out blocks of columns next to the labels of rows. Blocks follow below each other if the
//! screen is too narrow.

use super::super::{front::Column, plain::excerpt};

/// The widest label, in columns.
const WIDEST_LABEL: usize = 42;
/// The widest cell, in columns.
const WIDEST_CELL: usize = 22;
/// Spaces between columns, and between blocks.
const GAP: usize = 2;
const GAP_OF_BLOCKS: usize = 3;

fn length(text: &str) -> usize {
    text.chars().count()
}

fn fitted(text: &str, width: usize) -> String {
    if length(text) > width { excerpt(text, width.saturating_sub(1)) } else { text.to_owned() }
}

fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(length(text))))
}

/// Joins the parts of each label to one text, with the parts aligned.
pub(super) fn aligned(labels: &[Vec<String>]) -> Vec<String> {
    let mut widths: Vec<usize> = Vec::new();
    for label in labels {
        widths.resize(widths.len().max(label.len()), 0);
        widths.iter_mut().zip(label).for_each(|(width, part)| *width = (*width).max(length(part)));
    }
    let one = |label: &Vec<String>| {
        let parts: Vec<String> = label.iter().zip(&widths).map(|(part, width)| padded(part, *width)).collect();
        fitted(parts.join("  ").trim_end(), WIDEST_LABEL)
    };
    labels.iter().map(one).collect()
}

/// Returns the width of `column` without the gaps.
fn width(column: &Column) -> usize {
    let texts = column.cells.iter().map(|cell| &cell.text).chain([&column.head]);
    texts.map(|text| length(text)).max().unwrap_or(0).min(WIDEST_CELL)
}

/// Lays out all columns in lines of at most `width`, each line with its label.
pub(super) fn lines(labels: &[String], columns: &[Column], width: usize) -> Vec<String> {
    let widest = labels.iter().map(|label| length(label)).max().unwrap_or(0);
    let room = width.saturating_sub(widest + GAP);
    let mut lines = Vec::new();
    for group in groups(columns, room) {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(lines_of(labels, widest, &group));
    }
    lines
}

/// Returns the width of `columns` side by side, with the gaps before them and their titles.
fn width_of(columns: &[&Column]) -> usize {
    let of_block = |block: &[&Column]| {
        let columns: usize = block.iter().map(|column| width(column) + GAP).sum();
        let title = block.first().map_or(0, |column| length(&column.title).min(WIDEST_CELL * 2));
        (columns - GAP).max(title) + GAP_OF_BLOCKS
    };
    columns.chunk_by(|one, next| one.block == next.block).map(of_block).sum()
}

/// Groups the columns that stand side by side: as many whole blocks as `room` allows.
fn groups(columns: &[Column], room: usize) -> Vec<Vec<&Column>> {
    let mut groups: Vec<Vec<&Column>> = Vec::new();
    for block in columns.chunk_by(|one, next| one.block == next.block) {
        let block: Vec<&Column> = block.iter().collect();
        if let Some(last) = groups.last_mut() {
            let both = [last.as_slice(), &block].concat();
            if width_of(&both) <= room {
                *last = both;
                continue;
            }
        }
        let mut part: Vec<&Column> = Vec::new();
        for column in block {
            part.push(column);
            if part.len() > 1 && width_of(&part) > room {
                part.pop();
                groups.push(std::mem::replace(&mut part, vec![column]));
            }
        }
        groups.push(part);
    }
    groups
}

fn lines_of(labels: &[String], widest: usize, group: &[&Column]) -> Vec<String> {
    let indent = |text: &str| padded(text, widest + GAP);
    let (mut titles, mut heads) = (indent(""), indent(""));
    let mut rows: Vec<String> = labels.iter().map(|label| indent(&format!("  {label}"))).collect();
    for block in group.chunk_by(|one, next| one.block == next.block) {
        let room = width_of(block).saturating_sub(GAP_OF_BLOCKS);
        let gap = " ".repeat(GAP_OF_BLOCKS);
        let title = block.first().map(|column| fitted(&column.title, room)).unwrap_or_default();
        titles.push_str(&format!("{gap}{}", padded(&title, room)));
        let line = |text: &dyn Fn(&Column) -> String| {
            let cells: Vec<String> = block.iter().map(|column| padded(&text(column), width(column))).collect();
            format!("{gap}{}", padded(&cells.join("  "), room))
        };
        heads.push_str(&line(&|column| column.head.clone()));
        for (index, row) in rows.iter_mut().enumerate() {
            let text = |column: &Column| {
                let cell = column.cells.get(index).map_or("", |cell| &cell.text);
                fitted(cell, WIDEST_CELL)
            };
            row.push_str(&line(&text));
        }
    }
    let all = [titles, heads].into_iter().chain(rows).map(|line| line.trim_end().to_owned());
    all.filter(|line| !line.is_empty()).collect()
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page as text.

use std::ops::Range;

use bpfassay_study::Target;

use super::FeatureMatrix;
use crate::render::{plain::line, wrap::push_wrapped};

/// The width without a terminal.
const WIDTH: usize = 100;
const MIN_LABEL: usize = 24;
const MAX_LABEL: usize = 44;

/// Renders the page as text for a terminal with `width` columns.
pub(in crate::render) fn text(page: &FeatureMatrix, width: Option<u16>) -> String {
    let width = width.map_or(WIDTH, usize::from);
    let wrap = u16::try_from(width).ok();
    let columns = Columns::new(page, width);
    let mut text = String::new();
    push_wrapped(&mut text, &line(&page.title), wrap);
    for surprise in page.warnings.iter().chain(&page.surprises) {
        push_wrapped(&mut text, &format!("! {}", line(surprise)), wrap);
    }
    for part in columns.parts() {
        columns.heading(&mut text, part.clone());
        for block in &page.blocks {
            text.push_str(&format!("{}\n", line(&block.title)));
            for row in &block.rows {
                columns.row(&mut text, &row.label, &row.cells, part.clone());
                for below in row.below() {
                    push_wrapped(&mut text, &format!("      {}", line(below)), wrap);
                }
            }
        }
    }
    for (title, names) in &page.folded {
        push_wrapped(&mut text, &format!("{title}: {}", line(&names.join(", "))), wrap);
    }
    for legend in &page.legend {
        push_wrapped(&mut text, &format!("  {legend}"), wrap);
    }
    text
}

struct Columns<'a> {
    targets: &'a [Target],
    label: usize,
    /// The width of each target's column.
    cell: Vec<usize>,
    fit: bool,
}

impl<'a> Columns<'a> {
    fn new(page: &'a FeatureMatrix, width: usize) -> Self {
        let rows = || page.blocks.iter().flat_map(|block| &block.rows);
        let length = |text: &String| line(text).chars().count();
        let cell: Vec<usize> = page
            .targets
            .iter()
            .enumerate()
            .map(|(index, target)| {
                let widest = rows().filter_map(|row| row.cells.get(index)).map(length).max().unwrap_or(0);
                length(&target.kernel).max(widest).max(3) + 1
            })
            .collect();
        let needed: usize = cell.iter().sum::<usize>() + archs(&page.targets).len();
        let wanted = rows().map(|row| length(&row.label) + 3).max().unwrap_or(0).clamp(MIN_LABEL, MAX_LABEL);
        let label = width.saturating_sub(needed).clamp(MIN_LABEL, wanted);
        Self { targets: &page.targets, label, cell, fit: label + needed <= width }
    }

    /// Returns all targets side by side, or one architecture after the other if that is too wide.
    fn parts(&self) -> Vec<Range<usize>> {
        if self.fit { std::iter::once(0..self.targets.len()).collect() } else { archs(self.targets) }
    }

    /// Adds two lines: architectures and kernels.
    fn heading(&self, text: &mut String, part: Range<usize>) {
        let (mut upper, mut lower) = (String::new(), String::new());
        for group in archs(&self.targets[part.clone()]) {
            let group = group.start + part.start..group.end + part.start;
            let width = self.cell[group.clone()].iter().sum::<usize>() + 1;
            upper.push_str(&format!(" {:<width$}", self.targets[group.start].arch.name(), width = width - 1));
            lower.push(' ');
            for index in group {
                lower.push_str(&format!("{:<width$}", line(&self.targets[index].kernel), width = self.cell[index]));
            }
        }
        for line in [upper, lower] {
            text.push_str(&format!("{:label$}{}\n", "", line.trim_end(), label = self.label));
        }
    }

    fn row(&self, text: &mut String, label: &str, cells: &[String], part: Range<usize>) {
        let label = format!("  {}", line(label));
        let mut shown = match label.chars().count() < self.label {
            true => format!("{label:<width$}", width = self.label),
            false => {
                // A name that is too long gets a separate line.
                text.push_str(&format!("{label}\n"));
                " ".repeat(self.label)
            }
        };
        let starts: Vec<usize> =
            archs(&self.targets[part.clone()]).iter().map(|group| group.start + part.start).collect();
        for index in part {
            shown.push_str(if starts.contains(&index) { " " } else { "" });
            shown.push_str(&format!("{:<width$}", line(&cells[index]), width = self.cell[index]));
        }
        text.push_str(&format!("{}\n", shown.trim_end()));
    }
}

/// Returns the ranges of targets of the same architecture.
fn archs(targets: &[Target]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (index, target) in targets.iter().enumerate() {
        match ranges.last_mut() {
            Some(range) if targets[range.start].arch == target.arch => range.end = index + 1,
            _ => ranges.push(index..index + 1),
        }
    }
    ranges
}

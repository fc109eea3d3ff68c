// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lays tables out on a narrow terminal: columns become narrower, or a row takes several lines.

use std::ops::Range;

/// Spaces between two columns.
const GAP: usize = 2;
/// Spaces before the first line of a row, and before the others.
const INDENT: [usize; 2] = [1, 5];
/// The largest heights of a cell, in lines, that are tried before a row gets another line.
const CELL_LINES: [usize; 3] = [1, 2, 4];

struct ColumnLayout {
    widths: Vec<usize>,
    /// The columns in each line of a row.
    lines: Vec<Range<usize>>,
}

/// Lays out a table with `head` and `rows` in lines of at most `width`. A row takes as few lines as
/// possible: columns become narrower before a row gets another line, as long as no cell becomes
/// high.
pub(super) fn lines(head: &[String], rows: &[Vec<String>], width: usize) -> Vec<String> {
    let layout = lay_out(head, rows, width);
    let mut lines = Vec::new();
    push_row(&mut lines, head, &layout);
    let longest = layout.lines.iter().zip(0..).map(|(columns, at)| extent(&layout.widths, columns, at)).max();
    lines.push("-".repeat(longest.unwrap_or(0).min(width)));
    for row in rows {
        push_row(&mut lines, row, &layout);
    }
    lines
}

fn indent(line: usize) -> usize {
    INDENT[line.min(INDENT.len() - 1)]
}

/// Returns the width of `columns` in the `line`-th line of a row.
fn extent(widths: &[usize], columns: &Range<usize>, line: usize) -> usize {
    let of: &[usize] = widths.get(columns.clone()).unwrap_or_default();
    indent(line) + of.iter().sum::<usize>() + GAP * of.len().saturating_sub(1)
}

fn lay_out(head: &[String], rows: &[Vec<String>], width: usize) -> ColumnLayout {
    let room = width.saturating_sub(INDENT[1]).max(1);
    let cells = |column: usize| {
        let of_rows = rows.iter().filter_map(move |row| row.get(column));
        head.get(column).into_iter().chain(of_rows).map(String::as_str)
    };
    let narrowed: Vec<Vec<usize>> = CELL_LINES
        .iter()
        .map(|most| (0..head.len()).map(|column| narrowest(cells(column), *most, room)).collect())
        .collect();
    let natural = narrowed.first().cloned().unwrap_or_default();
    for most in 1..head.len().max(1) {
        // One more line is better than cells of many lines; two more are worse than cells of two
        // lines.
        for widths in narrowed.iter().take(most + 1) {
            if let Some(lines) = fill(widths, &natural, width, most) {
                let is_broken = |column: usize| move |cell: &&str| cell.chars().count() > widths[column];
                let broken: Vec<usize> =
                    (0..head.len()).map(|column| cells(column).filter(is_broken(column)).count()).collect();
                return widen(ColumnLayout { widths: widths.clone(), lines }, &natural, &broken, width);
            }
        }
    }
    // Each column gets its own line.
    ColumnLayout { widths: natural, lines: (0..head.len()).map(|column| column..column + 1).collect() }
}

/// Returns the narrowest width, at most `room`, at which no cell needs more than `most` lines.
/// Longer words are broken.
fn narrowest<'a>(cells: impl Iterator<Item = &'a str>, most: usize, room: usize) -> usize {
    let of = |cell: &str| {
        let length = cell.chars().count();
        if most == 1 || length <= 1 {
            return length;
        }
        let word = cell.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
        (word.max(length.div_ceil(most))..=length).find(|&width| wrapped(cell, width).len() <= most).unwrap_or(length)
    };
    cells.map(of).max().unwrap_or(0).min(room)
}

/// Distributes the columns to at most `most` lines so that they fit with these widths, and lack
/// little of their natural widths; `None` if they do not fit.
fn fill(widths: &[usize], natural: &[usize], width: usize, most: usize) -> Option<Vec<Range<usize>>> {
    // For each number of columns, the best layout: the lacking width, and the lines.
    let mut best: Vec<Option<(usize, Vec<Range<usize>>)>> = vec![None; widths.len() + 1];
    *best.first_mut()? = Some((0, Vec::new()));
    for line in 0..most {
        let mut next: Vec<Option<(usize, Vec<Range<usize>>)>> = vec![None; widths.len() + 1];
        for (start, known) in best.iter().enumerate() {
            let Some((lacking, lines)) = known else { continue };
            for (end, best_here) in next.iter_mut().enumerate().skip(start + 1) {
                let columns = start..end;
                if extent(widths, &columns, line) > width {
                    break;
                }
                let lacking = lacking + extent(natural, &columns, line).saturating_sub(width);
                if best_here.as_ref().is_none_or(|(known, _)| lacking <= *known) {
                    *best_here = Some((lacking, [lines.as_slice(), &[columns]].concat()));
                }
            }
        }
        best = next;
    }
    best.pop().flatten().map(|(_, lines)| lines)
}

/// Widens columns to their natural widths if there is room, beginning with the columns that would
/// have the most broken cells.
fn widen(mut layout: ColumnLayout, natural: &[usize], broken: &[usize], width: usize) -> ColumnLayout {
    let mut columns: Vec<usize> = (0..natural.len()).collect();
    columns.sort_by_key(|&column| std::cmp::Reverse(broken.get(column)));
    for column in columns {
        let Some(line) = layout.lines.iter().position(|of| of.contains(&column)) else { continue };
        let used = extent(&layout.widths, &layout.lines[line], line);
        let room = width.saturating_sub(used);
        let lacks = natural[column].saturating_sub(layout.widths[column]);
        layout.widths[column] += lacks.min(room);
    }
    layout
}

/// Adds the lines of one row.
fn push_row(lines: &mut Vec<String>, row: &[String], layout: &ColumnLayout) {
    for (columns, at) in layout.lines.iter().zip(0..) {
        let cells: Vec<(Vec<String>, usize)> = columns
            .clone()
            .map(|column| {
                let width = layout.widths[column];
                // A column without any text takes no room.
                (row.get(column).map(|cell| wrapped(cell, width.max(1))).unwrap_or_default(), width)
            })
            .collect();
        let height = cells.iter().map(|(lines, _)| lines.len()).max().unwrap_or(0);
        for number in 0..height {
            let mut line = " ".repeat(indent(at));
            for (cell, width) in &cells {
                let text = cell.get(number).map_or("", String::as_str);
                line.push_str(text);
                line.push_str(&" ".repeat((width + GAP).saturating_sub(text.chars().count())));
            }
            lines.push(line.trim_end().to_owned());
        }
    }
}

/// Wraps `cell` in lines of at most `width`, between words, and within words that are longer.
fn wrapped(cell: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut length) = (String::new(), 0);
    for word in cell.split(' ') {
        let mut word = word;
        if !line.is_empty() && length + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        if !line.is_empty() {
            line.push(' ');
            length += 1;
        }
        while let Some((end, _)) = word.char_indices().nth(width) {
            lines.push(word[..end].to_owned());
            word = &word[end..];
        }
        line.push_str(word);
        length += word.chars().count();
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect()
    }

    #[test]
    fn a_row_takes_as_few_lines_as_it_can() {
        let rows = table(&[&["probe", "what came", "n"], &["fexit", "refused, as expected", "2"]]);
        let laid_out = |width| lines(&rows[0], &rows[1..], width).join("\n");
        assert_eq!(
            laid_out(40),
            " probe  what came             n\n-------------------------------\n fexit  refused, as expected  2"
        );
        // A column becomes narrower before a row gets another line.
        assert_eq!(
            laid_out(24),
            " probe  what came      n\n------------------------\n fexit  refused, as    2\n        expected"
        );
        assert_eq!(
            laid_out(18),
            " probe  what came\n     n\n------------------\n fexit  refused,\n        as\n        expected\n     2"
        );
    }

    #[test]
    fn words_that_no_line_holds_are_broken() {
        assert_eq!(wrapped("a bcdefgh i", 3), ["a", "bcd", "efg", "h i"]);
        assert_eq!(wrapped("", 3), [""; 0]);
    }

    proptest! {
        #[test]
        fn no_line_is_too_long_and_nothing_is_lost(
            rows in (1_usize..6).prop_flat_map(|columns| proptest::collection::vec(proptest::collection::vec("[a-z ]{0,30}", columns), 1..6)),
            width in 8_u16..100,
        ) {
            let shown = lines(&rows[0], &rows[1..], usize::from(width));
            for line in &shown {
                prop_assert!(line.chars().count() <= usize::from(width), "{line:?} in {width}");
            }
            let letters = |text: &str| text.chars().filter(char::is_ascii_lowercase).count();
            let all: usize = rows.iter().flatten().map(|cell| letters(cell)).sum();
            prop_assert_eq!(shown.iter().map(|line| letters(line)).sum::<usize>(), all);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wraps lines to the width of a terminal.

/// Adds `line`, wrapped between words if it is longer than `width`. All lines but the first are
/// indented.
pub fn push_wrapped(text: &mut String, line: &str, width: Option<u16>) {
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wraps lines to the width of a terminal.

use textwrap::{Options, WordSeparator::AsciiSpace, WordSplitter::NoHyphenation, WrapAlgorithm::FirstFit};

/// Adds `line`, wrapped between words if it is longer than `width`. All lines but the first are
/// indented.
pub fn push_wrapped(text: &mut String, line: &str, width: Option<u16>) {
    let options = Options::new(width.map_or(usize::MAX, usize::from)).subsequent_indent("    ").break_words(false);
    let options = options.word_separator(AsciiSpace).word_splitter(NoHyphenation).wrap_algorithm(FirstFit);
    text.push_str(&textwrap::fill(line, options));
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

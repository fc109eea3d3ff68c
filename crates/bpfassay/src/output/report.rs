// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors as reports on standard error.

use std::{
    error::Error,
    fmt::{self, Display},
    io::{IsTerminal as _, Write as _},
};

use bpfassay_results::plain;
use miette::{Diagnostic, MietteHandler, MietteHandlerOpts, ReportHandler as _};

use super::{InvalidFile, coloured_stderr, colours, stderr};

/// The largest number of characters of one error.
const MOST: usize = 16_000;

/// Prints `report` on standard error.
pub(crate) fn print_report(report: &miette::Report) {
    let stream = stderr().stream;
    let text = shown(report, colours(&stream), stream.is_terminal());
    // There is no way to report that standard error is closed; the exit code remains.
    let _ = coloured_stderr().write_all(text.as_bytes());
}

/// Formats `report`. Lines are wrapped for a terminal only: logs and other programs get each
/// message on one line.
fn shown(report: &miette::Report, colours: bool, is_terminal: bool) -> String {
    let options = MietteHandlerOpts::new().color(colours).terminal_links(false).wrap_lines(is_terminal);
    match report.downcast_ref::<InvalidFile>() {
        Some(file) => styled(file, options),
        None => styled(&Plain::of(report), options),
    }
}

/// Formats `diagnostic`, whose text has no hazards, in the style of `options`.
pub(super) fn styled(diagnostic: &dyn Diagnostic, options: MietteHandlerOpts) -> String {
    format!("{:?}\n", Styled { diagnostic, handler: options.build() })
}

/// An error formatted by its handler.
struct Styled<'a> {
    diagnostic: &'a dyn Diagnostic,
    handler: MietteHandler,
}

impl fmt::Debug for Styled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handler.debug(self.diagnostic, f)
    }
}

/// An error as text without hazards, safe for any handler.
#[derive(Debug)]
struct Plain {
    message: String,
    help: Option<String>,
    cause: Option<Box<Self>>,
}

impl Plain {
    fn of(report: &miette::Report) -> Self {
        let mut all: Vec<Self> =
            report.chain().map(|error| Self { message: text_of(error), help: None, cause: None }).collect();
        let help = report.help().map(|help| text_of(&help));
        let mut whole = all.pop();
        while let Some(mut outer) = all.pop() {
            outer.cause = whole.map(Box::new);
            whole = Some(outer);
        }
        Self { help, ..whole.unwrap_or(Self { message: String::new(), help: None, cause: None }) }
    }
}

/// Escapes a text and keeps its lines: reports have several.
fn text_of(value: &(impl Display + ?Sized)) -> String {
    let text = value.to_string();
    let end = text.char_indices().nth(MOST).map_or(text.len(), |(end, _)| end);
    let more = if end < text.len() { "…" } else { "" };
    format!("{}{more}", plain::text(&text[..end]))
}

impl Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Plain {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

impl Diagnostic for Plain {
    fn help<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::filtered;

    #[derive(Debug, thiserror::Error)]
    #[error("outer \x1b[31mred \u{9b}2J")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn text_from_outside_has_no_colours_and_ours_has() {
        let source = std::io::Error::other("inner \x1b]0;title\x07 \u{202e}txt\nnext");
        let report = miette::Report::from_err(Outer(source));
        let text = filtered(shown(&report, true, true).as_bytes(), true);
        for part in [r"outer \x1b[31mred \u{9b}2J", r"inner \x1b]0;title\x07 \u{202e}txt", "next"] {
            assert!(text.contains(part), "{part}: {text:?}");
        }
        assert!(text.contains("\x1b[31m"), "no colours: {text:?}");
        let rest: String =
            text.split("\x1b[").map(|part| part.split_once('m').map_or(part, |(_, rest)| rest)).collect();
        assert!(!rest.contains(|c| plain::is_hazard(c) && c != '\n'), "{text:?}");
    }

    #[test]
    fn help_is_shown_and_not_obeyed() {
        let report = miette::miette!(help = "do \x1b[2J this", "it failed");
        let plain = Plain::of(&report);
        assert_eq!((plain.message.as_str(), plain.help.as_deref()), ("it failed", Some(r"do \x1b[2J this")));
        assert!(plain.cause.is_none());
    }
}

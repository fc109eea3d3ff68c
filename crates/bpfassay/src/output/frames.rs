// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports invalid study and tool files: every complaint with the lines of the file that it
//! concerns.

use std::{
    collections::BTreeMap,
    error::Error,
    fmt::{self, Display},
    sync::Arc,
};

use bpfassay_input::document::{Complaint, Invalid};
use bpfassay_results::plain;
use bpfassay_study::StudyError;
use bpfassay_tool::ToolError;
use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

/// The largest number of characters of a line of a file.
const MAX_COLUMNS: usize = 200;

/// An invalid file, whose texts have no hazards.
#[derive(Debug)]
pub(crate) struct InvalidFile {
    message: String,
    source: NamedSource<Arc<str>>,
    complaints: Vec<LocatedComplaint>,
}

/// A complaint with its place in the shown text.
#[derive(Debug)]
struct LocatedComplaint {
    message: String,
    help: Option<String>,
    label: LabeledSpan,
}

impl InvalidFile {
    /// Returns the file that `error` concerns, if it is an invalid one.
    pub(crate) fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let tool = error.downcast_ref::<ToolError>().or_else(|| match error.downcast_ref()? {
            bpfassay_testbed::Error::ToolFile(error) => Some(error),
            _ => None,
        });
        let study = error.downcast_ref::<StudyError>().and_then(StudyError::invalid);
        study.or_else(|| tool?.invalid()).map(Self::new)
    }

    fn new(invalid: &Invalid) -> Self {
        let (text, places) = shown(invalid);
        let at = |offset| places.get(&offset).copied().unwrap_or(text.len());
        let complaints = invalid.complaints.iter().map(|Complaint { span, message, help }| LocatedComplaint {
            message: plain::line(message).into_owned(),
            help: help.as_ref().map(|help| plain::line(help).into_owned()),
            label: LabeledSpan::new(None, at(span.start), at(span.end) - at(span.start)),
        });
        let origin = plain::line(&invalid.origin);
        let message = match (complaints.len(), invalid.omitted) {
            (1, 0) => format!("{origin} is not valid"),
            (errors, 0) => format!("{origin} is not valid: {errors} errors"),
            (errors, omitted) => {
                format!("{origin} is not valid: {} errors, of which these are the first {errors}", errors + omitted)
            }
        };
        Self { message, complaints: complaints.collect(), source: NamedSource::new(origin, text.into()) }
    }
}

/// Returns the text of the file without hazards and with short lines, and the positions of the
/// spans' ends in it.
fn shown(invalid: &Invalid) -> (String, BTreeMap<usize, usize>) {
    let ends = invalid.complaints.iter().flat_map(|complaint| [complaint.span.start, complaint.span.end]);
    let mut places: BTreeMap<usize, usize> = ends.map(|end| (end, usize::MAX)).collect();
    let mut text = String::with_capacity(invalid.text.len());
    let mut column = 0;
    for (at, c) in invalid.text.char_indices() {
        if let Some(place) = places.get_mut(&at) {
            *place = text.len();
        }
        column = if c == '\n' { 0 } else { column + 1 };
        match c {
            '\n' => text.push('\n'),
            _ if column > MAX_COLUMNS + 1 => {}
            _ if column > MAX_COLUMNS => text.push('…'),
            '\t' => text.push(' '),
            c if plain::is_hazard(c) => plain::push_escaped(&mut text, c),
            c => text.push(c),
        }
    }
    places.values_mut().for_each(|place| *place = (*place).min(text.len()));
    (text, places)
}

impl Display for InvalidFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for InvalidFile {}

impl Diagnostic for InvalidFile {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source)
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.complaints.iter().map(|complaint| complaint as &dyn Diagnostic)))
    }
}

impl Display for LocatedComplaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for LocatedComplaint {}

impl Diagnostic for LocatedComplaint {
    fn help<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as _)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(std::iter::once(self.label.clone())))
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_study::Study;
    use bpfassay_tool::ToolFile;
    use miette::MietteHandlerOpts;

    use super::*;
    use crate::output::{filtered, report::styled};

    /// Formats an error for a terminal of 80 columns, without colours.
    fn report(error: &(dyn Error + 'static)) -> String {
        let options = MietteHandlerOpts::new().color(false).terminal_links(false).width(80);
        let text = styled(&InvalidFile::of(error).unwrap(), options);
        assert_eq!(filtered(text.as_bytes(), false), text);
        text
    }

    #[test]
    fn everything_that_is_wrong_in_a_study_is_shown_where_it_stands() {
        let text = include_str!("../../tests/broken/study.toml");
        let error = Study::parse("study.toml", text, &|_| Ok(None)).unwrap_err();
        insta::assert_snapshot!("study", report(&error));
    }

    #[test]
    fn everything_that_is_wrong_in_a_tool_file_is_shown_where_it_stands() {
        let text = include_str!("../../tests/broken/tool.toml");
        let error = ToolError::from(ToolFile::parse("tool.toml", text).unwrap_err());
        insta::assert_snapshot!("tool", report(&error));
    }

    #[test]
    fn what_a_file_holds_is_shown_and_not_obeyed() {
        let text = format!("\"\u{1b}]0;title\u{7}\u{202e}{}\" = 1 # \u{1b}[2J\n", "x".repeat(100_000));
        let error = Study::parse("a\u{1b}[2Jb", &text, &|_| Ok(None)).unwrap_err();
        let text = report(&error);
        assert!(text.contains(r"a\x1b[2Jb") && text.contains(r"\x1b]0;title\x07\u{202e}"), "{text}");
        assert!(text.len() < 4000, "{}", text.len());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event streams: one line per event. The events are counted here.
//!
//! A figure of calls counts lines. A figure of successes does the same for a tool that prints only
//! successes. `value` is what the call returned: bytes, or a negative number if it failed.

use std::borrow::Cow;

use super::{MAX_LABEL, ReportedSample, SampleSink, TextRow, json::object, matched_lines::TimedLine, number::whole};
use crate::{
    file::{CountedUnit, ReportedFigure},
    pattern::ToolPattern,
};

/// Reads the events. `form` is the pattern of lines; `None` for JSON objects.
pub(super) fn read(
    sink: &mut SampleSink<'_>,
    lines: impl Iterator<Item = TimedLine>,
    form: Option<&ToolPattern>,
    ignore: Option<&ToolPattern>,
) {
    for line in lines {
        if sink.is_full() {
            return;
        }
        let is_ignored = || ignore.is_some_and(|ignore| ignore.regex().is_match(&line.text));
        if let Some(form) = form {
            match form.regex().captures(&line.text) {
                Some(found) => {
                    let groups =
                        form.groups().filter_map(|group| Some((group.into(), found.name(group)?.as_str().into())));
                    event(sink, line.at_ns, &groups.collect(), &line.text);
                }
                None if is_ignored() => {}
                None => sink.unread(&line.text, "not such a line"),
            }
        } else if !is_ignored() {
            object(sink, &line, |sink, row| event(sink, line.at_ns, row, &line.text));
        }
    }
}

/// The amount that one event adds to `figure`, or a message if it is unknown.
fn amount(figure: &ReportedFigure, row: &TextRow<'_>) -> Result<u64, String> {
    if figure.value.is_empty() {
        return Ok(1);
    }
    let name = &figure.value;
    let text = row.get(name.as_str()).ok_or_else(|| format!("an event without `{name}`"))?;
    let failed = text.trim().strip_prefix('-').and_then(whole).is_some_and(|number| number > 0);
    let number = whole(text).and_then(|value| value.checked_mul(figure.scale));
    match (figure.unit, number) {
        (_, None) if !failed => Err(format!("`{name}` is no whole number below 2^64")),
        (CountedUnit::Calls, _) => Ok(1),
        (CountedUnit::Errors, _) => Ok(failed.into()),
        (CountedUnit::Successes, _) => Ok((!failed).into()),
        (CountedUnit::BytesReturned | CountedUnit::BytesRequested, number) => Ok(number.unwrap_or(0)),
    }
}

fn event(sink: &mut SampleSink<'_>, at_ns: u64, row: &TextRow<'_>, text: &str) {
    sink.report(at_ns);
    sink.note_names(row);
    for (index, figure) in sink.own_figures() {
        let fits = figure.labelled.iter().all(|(key, value)| row.get(key.as_str()).is_some_and(|found| found == value));
        if !fits || sink.is_full() {
            continue;
        }
        let subject: Option<Option<&Cow<'_, str>>> = figure.label.as_ref().map(|label| row.get(label.as_str()));
        match (amount(figure, row), subject) {
            (Err(why), _) => sink.unread(text, &why),
            (Ok(_), Some(None)) => {
                let label = figure.label.as_deref().unwrap_or_default();
                sink.unread(text, &format!("an event without `{label}`"));
            }
            (Ok(value), subject) => {
                let subject = subject.flatten().map(|text| text.chars().take(MAX_LABEL).collect());
                sink.readings.samples.push(ReportedSample { at_ns, figure: index, subject, value });
            }
        }
    }
}

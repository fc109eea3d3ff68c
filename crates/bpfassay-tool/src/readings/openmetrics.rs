// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prometheus' text format and OpenMetrics.
//!
//! The parser is small and implemented here. Existing crates parse large numbers as floating point,
//! which loses digits, or refuse a whole page for a single error. Formats:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/> and
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>. Time stamps and exemplars are ignored;
//! the time of the guest's request counts.

use std::borrow::Cow;

use super::{MAX_LINE, SampleSink, TextRow, buckets::Histograms};
use crate::{file::ReportForm, recorded_output::CapturedPage};

/// Limit for labels of a sample.
const MAX_LABELS: usize = 64;

pub(super) fn read<'f>(sink: &mut SampleSink<'f>, form: &'f ReportForm, pages: &[CapturedPage]) {
    for page in pages {
        if let ReportForm::OpenmetricsPages { pages, .. } = form {
            // The page is not in the tool file.
            let Some(of) = pages.get(page.place) else { continue };
            sink.part = Some(&of.name);
        }
        let mut histograms = Histograms::default();
        let first = sink.readings.samples.len();
        sink.report(page.at_ns);
        for line in page.body.split(|&byte| byte == b'\n') {
            if sink.is_full() {
                break;
            }
            let line = String::from_utf8_lossy(&line[..line.len().min(MAX_LINE)]);
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match sample(line) {
                Some(row) => {
                    let name = line.split(|c: char| c == '{' || c.is_ascii_whitespace()).next().unwrap_or_default();
                    histograms.add(sink, name, &row, line);
                    sink.row(page.at_ns, &row, line);
                }
                None => sink.unread(line, "no sample"),
            }
        }
        sink.add_up(first);
        histograms.end(sink, page.at_ns);
        if sink.is_full() {
            return;
        }
    }
}

/// Parses `name{label="value",…} number [time stamp] [# exemplar]`.
pub(crate) fn sample(line: &str) -> Option<TextRow<'_>> {
    let end = line.find(|c: char| c == '{' || c.is_ascii_whitespace())?;
    let (name, mut rest) = line.split_at(end);
    let mut row = TextRow::new();
    if let Some(labels) = rest.strip_prefix('{') {
        rest = labels.trim_start();
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once('=')?;
            let (value, after) = quoted(after.trim_start())?;
            row.insert(label.trim().into(), value);
            rest = after.trim_start();
            rest = rest.strip_prefix(',').map_or(rest, str::trim_start);
            if row.len() > MAX_LABELS {
                return None;
            }
        }
        rest = &rest[1..];
    }
    let value = rest.split_ascii_whitespace().next()?;
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'))
    };
    // Any number is accepted: most samples belong to no figure, and can be fractions.
    value.parse::<f64>().ok()?;
    if !is_name(name) || !row.keys().all(|label| is_name(label)) {
        return None;
    }
    row.insert(name.into(), value.into());
    Some(row)
}

/// Parses quoted text with `\\`, `\"` and `\n`. Returns it with the text that follows.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut characters = inner.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' if !inner[..at].contains('\\') => return Some((inner[..at].into(), &inner[at + 1..])),
            '"' => return Some((value.into(), &inner[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            c => value.push(c),
        }
    }
    None
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text lines that match a regular expression with named groups.

use super::{SampleSink, TextRow, matched_lines::TimedLine};
use crate::pattern::ToolPattern;

pub(super) fn read(
    sink: &mut SampleSink<'_>,
    lines: impl Iterator<Item = TimedLine>,
    form: &ToolPattern,
    ignore: Option<&ToolPattern>,
) {
    for line in lines {
        if sink.is_full() {
            return;
        }
        let Some(found) = form.regex().captures(&line.text) else {
            if !ignore.is_some_and(|ignore| ignore.regex().is_match(&line.text)) {
                sink.unread(&line.text, "not such a line");
            }
            continue;
        };
        let groups = form.groups().filter_map(|group| Some((group.into(), found.name(group)?.as_str().into())));
        let row: TextRow<'_> = groups.collect();
        sink.report(line.at_ns);
        sink.row(line.at_ns, &row, &line.text);
    }
}

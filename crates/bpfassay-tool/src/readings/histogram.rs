// SPDX-License-Identifier: MIT OR Apache-2.0
//! Histograms in the format of bcc and libbpf-tools (`print_log2_hist` and `print_linear_hist`,
//! libbpf-tools/trace_helpers.c of bcc 0.31):
//!
//! ```text
//! operation = 'read'
//!      usecs               : count    distribution
//!          0 -> 1          : 3        |***                                     |
//!          2 -> 3          : 40       |****************************************|
//! ```
//!
//! A figure is the number of values, named `usecs.count`. Labels are groups of the line above.

use super::{Bucket, SampleSink, TextRow, matched_lines::TimedLine, number::whole};
use crate::pattern::ToolPattern;

/// A bucket of a histogram.
struct BucketRange {
    least: u64,
    most: u64,
    count: u64,
}

/// Limit for buckets of one histogram. A logarithmic histogram has 64; the tool decides for a
/// linear one.
const MAX_BUCKETS: usize = 4096;

/// The patterns of lines other than histograms.
pub(super) struct LinePatterns<'a> {
    /// Pattern of the line that names the subject of the histograms below it.
    pub(super) heading: Option<&'a ToolPattern>,
    /// Pattern of a line that is a report by itself.
    pub(super) time: Option<&'a ToolPattern>,
    pub(super) ignore: Option<&'a ToolPattern>,
}

pub(super) fn read(sink: &mut SampleSink<'_>, lines: impl Iterator<Item = TimedLine>, settings: &LinePatterns<'_>) {
    let mut labels: Vec<(String, String)> = Vec::new();
    let mut table: Option<OpenHistogram> = None;
    for line in lines {
        if sink.is_full() {
            return;
        }
        let text = line.text.trim();
        if let Some(name) = title(text) {
            end(sink, table.take(), &labels);
            table =
                Some(OpenHistogram { name: name.to_owned(), at_ns: line.at_ns, buckets: Vec::new(), is_wrong: false });
            continue;
        }
        if let (Some(table), Some(bucket)) = (&mut table, bucket(text)) {
            table.add(sink, line.at_ns, bucket, text);
            continue;
        }
        end(sink, table.take(), &labels);
        if let Some((heading, found)) =
            settings.heading.and_then(|heading| Some((heading, heading.regex().captures(text)?)))
        {
            let groups = heading.groups();
            labels = groups.filter_map(|name| Some((name.to_owned(), found.name(name)?.as_str().to_owned()))).collect();
        } else if settings.time.is_some_and(|time| time.regex().is_match(text)) {
            sink.report(line.at_ns);
        } else if !settings.ignore.is_some_and(|ignore| ignore.regex().is_match(text)) {
            sink.unread(text, "no line of a histogram");
        }
    }
    end(sink, table, &labels);
}

/// An unfinished histogram.
struct OpenHistogram {
    /// The title, which names the values.
    name: String,
    /// Time when the last line was read.
    at_ns: u64,
    buckets: Vec<BucketRange>,
    /// Whether a line was invalid. The number of values is then unknown.
    is_wrong: bool,
}

impl OpenHistogram {
    fn add(&mut self, sink: &mut SampleSink<'_>, at_ns: u64, bucket: Option<BucketRange>, text: &str) {
        self.at_ns = at_ns;
        let why = match bucket {
            None => "a bucket without a whole number",
            Some(ref bucket) if self.buckets.last().is_some_and(|last| bucket.least <= last.most) => {
                "a bucket that does not lie above the one before it"
            }
            Some(_) if self.buckets.len() >= MAX_BUCKETS => "more buckets than are read",
            Some(bucket) => {
                self.buckets.push(bucket);
                return;
            }
        };
        self.is_wrong = true;
        sink.unread(text, why);
    }
}

/// Returns the title if `text` is the first line of a histogram.
fn title(text: &str) -> Option<&str> {
    let (name, columns) = text.split_once(':')?;
    let name = name.trim();
    let is_title = columns.split_ascii_whitespace().eq(["count", "distribution"]);
    (is_title && !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic())).then_some(name)
}

/// Parses `2 -> 3 : 40 |****|` or `2 : 40 |****|`. Returns `Some(None)` for such a line with an
/// invalid number.
fn bucket(text: &str) -> Option<Option<BucketRange>> {
    let (range, rest) = text.split_once(':')?;
    let (count, stars) = rest.split_once('|')?;
    let stars = stars.trim_end().strip_suffix(['|', '+']).or_else(|| stars.trim_end().strip_suffix("+|"))?;
    if !stars.chars().all(|c| matches!(c, '*' | ' ' | '+')) {
        return None;
    }
    let (least, most) = range.split_once("->").unwrap_or((range, range));
    let read = || Some(BucketRange { least: whole(least)?, most: whole(most)?, count: whole(count)? });
    Some(read().filter(|bucket| bucket.least <= bucket.most))
}

/// Adds the figures of a finished histogram.
fn end(sink: &mut SampleSink<'_>, table: Option<OpenHistogram>, labels: &[(String, String)]) {
    let Some(OpenHistogram { name, at_ns, buckets, is_wrong: false }) = table else { return };
    sink.report(at_ns);
    let count = buckets.iter().fold(0_u64, |sum, bucket| sum.saturating_add(bucket.count)).to_string();
    let mut row: TextRow<'_> = labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
    row.insert(format!("{name}.count").into(), count.into());
    if sink.row(at_ns, &row, &name) {
        let shown =
            |range: &BucketRange| Bucket { least: range.least, up_to: range.most.to_string(), count: range.count };
        let buckets: Vec<Bucket> = buckets.iter().map(shown).collect();
        sink.distribution(at_ns, &row, &format!("{name}.count"), &buckets);
    }
}

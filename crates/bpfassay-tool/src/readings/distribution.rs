// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of a tool's histograms. They are shown, and not compared with anything.

use std::collections::BTreeMap;

use super::{MAX_LABEL, MAX_SAMPLES, Readings, SampleSink, TextRow};
use crate::file::{Counting, ReportedFigure};

/// Number of values up to a bound, without those of smaller buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// No value of the bucket is smaller, in whole numbers.
    pub least: u64,
    /// The bound, as the tool prints it: `127`, `0.005`, `+Inf`.
    pub up_to: String,
    /// Number of values in the bucket.
    pub count: u64,
}

/// The values of one histogram in one report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    /// Time when the guest read it.
    pub at_ns: u64,
    /// Index of the figure that is the number of values.
    pub figure: usize,
    /// The cgroup, mount or process.
    pub subject: Option<String>,
    /// Buckets in ascending order.
    pub buckets: Vec<Bucket>,
}

impl SampleSink<'_> {
    /// Keeps a histogram's buckets for figures that are its number of values. Such a figure is
    /// named `value` and fits the labels in `row`.
    pub(super) fn distribution(&mut self, at_ns: u64, row: &TextRow<'_>, value: &str, buckets: &[Bucket]) {
        self.keep(at_ns, row, buckets, |figure| figure.value == value);
    }

    /// Like [`Self::distribution`], for figures that are the bucket of all values. They are named
    /// `value`, and their labels name its bound.
    pub(super) fn distribution_of_all(&mut self, at_ns: u64, row: &TextRow<'_>, value: &str, buckets: &[Bucket]) {
        self.keep(at_ns, row, buckets, |figure| figure.value == value && figure.labelled.contains_key("le"));
    }

    fn keep(&mut self, at_ns: u64, row: &TextRow<'_>, buckets: &[Bucket], is_of: impl Fn(&ReportedFigure) -> bool) {
        for (figure, of) in self.own_figures().filter(|(_, figure)| is_of(figure)) {
            // Buckets are only shown, so dropping them makes no figure less certain.
            if self.buckets + buckets.len() > MAX_SAMPLES {
                return;
            }
            let fits = of.labelled.iter().all(|(key, value)| row.get(key.as_str()).is_some_and(|found| found == value));
            let subject = of.label.as_ref().map(|label| row.get(label.as_str()));
            if !fits || subject.is_some_and(|found| found.is_none()) {
                continue;
            }
            let subject = subject.flatten().map(|text| text.chars().take(MAX_LABEL).collect());
            self.buckets += buckets.len();
            self.readings.distributions.push(Distribution { at_ns, figure, subject, buckets: buckets.to_vec() });
        }
    }
}

/// Smallest values and counts by bound.
type BoundCounts = BTreeMap<String, (u64, u64)>;

impl Readings {
    /// The histogram values of `figure` (index `index` in the report) from `from_ns` to `to_ns`, by
    /// subject in ascending order. Empty without a histogram.
    #[must_use]
    pub fn values(
        &self,
        index: usize,
        figure: &ReportedFigure,
        from_ns: u64,
        to_ns: u64,
    ) -> BTreeMap<Option<String>, Vec<Bucket>> {
        let mut by_subject: BTreeMap<&Option<String>, BoundCounts> = BTreeMap::new();
        let of_figure = || self.distributions.iter().filter(|one| one.figure == index && one.at_ns <= to_ns);
        // Time of each subject's last report, and of its last report before the start.
        let mut last: BTreeMap<&Option<String>, [Option<u64>; 2]> = BTreeMap::new();
        for one in of_figure() {
            let [end, start] = last.entry(&one.subject).or_default();
            *end = (*end).max(Some(one.at_ns));
            *start = (*start).max(Some(one.at_ns).filter(|&at_ns| at_ns <= from_ns));
        }
        for one in of_figure() {
            let [end, start] = last.get(&one.subject).copied().unwrap_or_default();
            let (counts_now, counts_before) = match figure.counting {
                Counting::Interval => (one.at_ns > from_ns, false),
                Counting::Cumulative => (end == Some(one.at_ns), start == Some(one.at_ns)),
            };
            if counts_now == counts_before {
                continue;
            }
            let counts = by_subject.entry(&one.subject).or_default();
            for bucket in &one.buckets {
                let (_, count) = counts.entry(bucket.up_to.clone()).or_insert((bucket.least, 0));
                // Earlier reports come first.
                *count = match counts_now {
                    true => count.wrapping_add(bucket.count),
                    false => count.wrapping_sub(bucket.count),
                };
            }
        }
        let ascending = |counts: BoundCounts| {
            let mut buckets: Vec<Bucket> =
                counts.into_iter().map(|(up_to, (least, count))| Bucket { least, up_to, count }).collect();
            let bound = |bucket: &Bucket| bucket.up_to.parse::<f64>().unwrap_or(f64::INFINITY);
            buckets.sort_by(|one, other| bound(one).total_cmp(&bound(other)));
            // A decreased count is invalid.
            buckets.retain(|bucket| bucket.count > 0 && bucket.count < 1 << 63);
            buckets
        };
        by_subject.into_iter().map(|(subject, counts)| (subject.clone(), ascending(counts))).collect()
    }
}

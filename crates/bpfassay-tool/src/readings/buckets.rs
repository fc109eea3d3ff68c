// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buckets of Prometheus histograms on a page: consistency checks and values.
//!
//! `name_bucket{le="x"}` counts the values up to `x`, including those of smaller buckets. The
//! bucket `+Inf` equals `name_count`
//! (<https://prometheus.io/docs/concepts/metric_types/#histogram>).

use std::{borrow::Cow, collections::BTreeMap};

use super::{Bucket, SampleSink, TextRow, number::whole};

/// The label with a bucket's bound.
const BOUND: &str = "le";

/// The histograms of one page, by name and labels.
#[derive(Default)]
pub(super) struct Histograms(BTreeMap<(String, Vec<(String, String)>), BucketHistogram>);

#[derive(Default)]
struct BucketHistogram {
    /// Non-cumulative counts, in the order of the page.
    buckets: Vec<Bucket>,
    /// Bound and count of the last bucket, as on the page.
    last: Option<(f64, u64)>,
    /// Value and line of `name_count`.
    count: Option<(u64, String)>,
    /// The first inconsistent line, and the reason.
    wrong: Option<(String, &'static str)>,
}

impl Histograms {
    /// Adds the sample `name` with the labels of `row`, if a figure uses its histogram. Such a
    /// figure has the suffix `_count`, `_sum` or `_bucket`.
    pub(super) fn add(&mut self, sink: &SampleSink<'_>, name: &str, row: &TextRow<'_>, line: &str) {
        let Some((base, is_count)) = name
            .strip_suffix("_bucket")
            .map(|base| (base, false))
            .or_else(|| name.strip_suffix("_count").map(|base| (base, true)))
        else {
            return;
        };
        let is_of = |value: &str| {
            value.strip_prefix(base).is_some_and(|suffix| ["_count", "_sum", "_bucket"].contains(&suffix))
        };
        if !sink.own_figures().any(|(_, figure)| is_of(&figure.value)) {
            return;
        }
        let labels = row.iter().filter(|(key, _)| *key != name && *key != BOUND);
        let labels = labels.map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let histogram = self.0.entry((base.to_owned(), labels)).or_default();
        let value = row.get(name).and_then(|value| whole(value));
        let complaint = match (is_count, value) {
            (_, None) => Some("no whole number in a histogram"),
            (true, Some(count)) => {
                histogram.count = Some((count, line.to_owned()));
                None
            }
            (false, Some(value)) => histogram.bucket(row.get(BOUND), value),
        };
        if let (Some(why), None) = (complaint, &histogram.wrong) {
            histogram.wrong = Some((line.to_owned(), why));
        }
    }

    /// Reports inconsistent histograms of the page read at `at_ns`, and keeps the values of the
    /// others.
    pub(super) fn end(self, sink: &mut SampleSink<'_>, at_ns: u64) {
        for ((base, labels), histogram) in self.0 {
            // A summary has a count, but no buckets.
            let wrong = histogram.wrong.or_else(|| match (&histogram.count, histogram.last?) {
                (_, (bound, _)) if bound != f64::INFINITY => Some((format!("{base}_bucket"), "no bucket of `+Inf`")),
                (Some((count, line)), (_, last)) if *count != last => {
                    Some((line.clone(), "not the count of the bucket `+Inf`"))
                }
                _ => None,
            });
            match wrong {
                Some((line, why)) => sink.unread(&line, why),
                None if histogram.last.is_none() => {}
                None => {
                    let labels = labels.iter().map(|(key, value)| (Cow::from(key.as_str()), Cow::from(value.as_str())));
                    let mut row: TextRow<'_> = labels.collect();
                    sink.distribution(at_ns, &row, &format!("{base}_count"), &histogram.buckets);
                    // A page without a sum also has no count. The largest bucket serves as count.
                    row.insert(BOUND.into(), "+Inf".into());
                    sink.distribution_of_all(at_ns, &row, &format!("{base}_bucket"), &histogram.buckets);
                }
            }
        }
    }
}

impl BucketHistogram {
    /// Adds a bucket. Returns what is wrong with it, if anything.
    fn bucket(&mut self, bound: Option<&Cow<'_, str>>, cumulative: u64) -> Option<&'static str> {
        let Some((text, bound)) = bound.and_then(|text| Some((text, text.parse::<f64>().ok()?))) else {
            return Some("a bucket without a number as its `le`");
        };
        let (least, before) = self.last.unwrap_or((f64::NEG_INFINITY, 0));
        // NaN is not greater than any bound.
        if bound.partial_cmp(&least) != Some(std::cmp::Ordering::Greater) {
            return Some("a bucket that does not lie above the one before it");
        }
        let Some(count) = cumulative.checked_sub(before) else {
            return Some("fewer values than in the bucket before it, which it contains");
        };
        self.last = Some((bound, cumulative));
        // The conversion turns negative numbers into 0.
        self.buckets.push(Bucket { least: least as u64, up_to: text.to_string(), count });
        None
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A histogram has durations that no call can have had.

use std::collections::BTreeMap;

use crate::{
    finding::{
        certainty::Certainty,
        course::of,
        definition::{Definition, KindInputs},
        finding_source::{KindSources, Source},
        status::FindingStatus,
    },
    readings::{Bucket, Distribution},
};

pub(super) const FINDING: Definition = Definition {
    name: "impossible-durations",
    explanation: "A histogram of the tool has durations below 0, or longer than the kernel had run. Not evaluated without a histogram whose name ends in a unit of time, or where not all that was reported could be read.",
    sources: KindSources::Of(&[Source::Figures, Source::Reports]),
    clear: "each duration in its histograms is one that a call can have had",
    explain: None,
    evaluate,
};

/// Names of units of time in titles of histograms and names of maps and metrics, and their length
/// in nanoseconds.
const UNITS: &[(&[&str], u64)] = &[
    (&["nsec", "nsecs", "ns", "nanoseconds"], 1),
    (&["usec", "usecs", "us", "microseconds"], 1_000),
    (&["msec", "msecs", "ms", "milliseconds"], 1_000_000),
    (&["sec", "secs", "s", "seconds"], 1_000_000_000),
];

/// Returns the unit of the values in the histogram that `value` counts, and its nanoseconds:
/// `usecs.count`, `@read_ns.count` and `io_time_seconds_count` have one.
fn unit(value: &str) -> Option<(&str, u64)> {
    let histogram = [".count", "_count", "_bucket"].iter().find_map(|suffix| value.strip_suffix(suffix))?;
    let word = histogram.rsplit(|c: char| !c.is_ascii_alphabetic()).next()?;
    UNITS.iter().find(|(names, _)| names.contains(&word)).map(|&(_, ns)| (word, ns))
}

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let (report, readings) = match known.reported() {
        Ok(reported) => reported,
        Err(reason) => return FindingStatus::not_evaluated(reason),
    };
    let (mut evidence, mut evaluated) = (BTreeMap::new(), false);
    for Distribution { at_ns, figure, subject, buckets } in &readings.distributions {
        let Some((name, ns)) = report.figures.get(*figure).and_then(|figure| unit(&figure.value)) else { continue };
        evaluated = true;
        // The clock of the guest begins when the kernel boots, and no call began before.
        let why = |bucket: &&Bucket| match bucket.up_to.starts_with('-') {
            true => Some("below 0".to_owned()),
            false if bucket.least.checked_mul(ns).is_none_or(|least| least > *at_ns) => Some(format!(
                "of at least {} {name}, {} s after the kernel booted",
                bucket.least,
                at_ns / 1_000_000_000
            )),
            false => None,
        };
        let impossible =
            buckets.iter().filter(|bucket| bucket.count > 0).find_map(|bucket| Some((bucket, why(&bucket)?)));
        if let Some((bucket, why)) = impossible {
            let values = if bucket.count == 1 { "value" } else { "values" };
            let line = format!("{}: {} {values} {why}", of(report, *figure, subject.as_deref()), bucket.count);
            evidence.entry((figure, subject)).or_insert(line);
        }
    }
    let evidence: Vec<String> = evidence.into_values().collect();
    match readings.incomplete() {
        Some(reason) if evidence.is_empty() => FindingStatus::not_evaluated(reason),
        None if !evaluated => FindingStatus::not_evaluated("it reports no histogram of durations"),
        _ => FindingStatus::from_evidence(Certainty::Proven, evidence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_at_the_end_of_the_name_of_the_histogram() {
        for (value, expected) in [
            ("usecs.count", Some(("usecs", 1_000))),
            ("@read_ns.count", Some(("ns", 1))),
            ("io_time_seconds_count", Some(("seconds", 1_000_000_000))),
            ("x_ms_bucket", Some(("ms", 1_000_000))),
            ("bytes.count", None),
            ("@reads.count", None),
            ("usecs", None),
        ] {
            assert_eq!(unit(value), expected, "{value}");
        }
    }
}

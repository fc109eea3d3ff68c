// SPDX-License-Identifier: MIT OR Apache-2.0
//! A histogram has durations that no call can have had.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    file::{CountedUnit, Report},
    finding::{
        certainty::{Certainty, EvidenceLine},
        course::of,
        definition::{Definition, KindInputs},
        finding_comparison::{NumberComparison, comparable, compare},
        finding_source::{KindSources, Source},
        status::FindingStatus,
        truth::{CallShare, ShareSubject, Truth, total},
    },
    readings::{Bucket, Distribution, Readings},
};

pub(super) const FINDING: Definition = Definition {
    name: "impossible-durations",
    explanation: "A histogram of the tool has durations below 0, or longer than the kernel had run, or durations that add up to more time than the threads of the workload had. Not evaluated without a histogram whose name ends in a unit of time, or where not all that was reported could be read.",
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
            evidence.entry((*figure, subject.clone())).or_insert(Certainty::Proven.line(line));
        }
    }
    if let Some(truth) = known.evidence.truth {
        for (histogram, line) in sums(report, readings, truth) {
            evidence.entry(histogram).or_insert(line);
        }
    }
    let evidence: Vec<EvidenceLine> = evidence.into_values().collect();
    match readings.incomplete() {
        Some(reason) if evidence.is_empty() => FindingStatus::not_evaluated(reason),
        None if !evaluated => FindingStatus::not_evaluated("it reports no histogram of durations"),
        _ => FindingStatus::from_lines(evidence),
    }
}

/// A figure, by its index in the report, and a subject.
type Histogram = (usize, Option<String>);

/// Finds histograms whose durations add up to more time than the threads had that made the calls.
/// Looks only at histograms that have exactly as many values as threads of the workload made calls.
fn sums(report: &Report, readings: &Readings, truth: &Truth) -> Vec<(Histogram, EvidenceLine)> {
    let last = readings.reports.iter().max().copied().unwrap_or_default();
    let whole_ns = truth.to_ns.min(last).saturating_sub(truth.from_ns);
    let mut all = Vec::new();
    for (index, figure) in comparable(report, truth).filter(|(_, figure)| figure.unit == CountedUnit::Calls) {
        let Some((_, ns)) = unit(&figure.value) else { continue };
        let Ok((comparisons, _)) = compare(index, figure, readings, truth) else { continue };
        for (subject, buckets) in readings.values(index, figure, truth.from_ns, truth.to_ns) {
            let is_its = |one: &&NumberComparison<'_>| subject.as_deref().is_none_or(|name| one.subject.has_name(name));
            let is_exact =
                |one: &&NumberComparison<'_>| [one.at_least, one.at_most] == [one.reported; 2] && one.slack == 0;
            let exact = comparisons.iter().find(is_its).filter(is_exact);
            let Some(most) = exact.and_then(|one| most_ns(&one.subject, truth, whole_ns)) else { continue };
            let count = buckets.iter().fold(0_u64, |sum, bucket| sum.saturating_add(bucket.count));
            let least = buckets.iter().map(|bucket| u128::from(bucket.least) * u128::from(bucket.count));
            let sum = least.fold(0_u128, u128::saturating_add).saturating_mul(ns.into());
            if sum > most {
                let name = of(report, index, subject.as_deref());
                let (sum, most) = (sum / 1_000_000, most.div_ceil(1_000_000));
                let text = format!(
                    "{name}: {count} values add up to at least {sum} ms, but the calls took at most {most} ms together"
                );
                all.push(((index, subject), Certainty::Bounded.line(text)));
            }
        }
    }
    all
}

/// Returns how long the calls of `subject` can have lasted together, in nanoseconds. `None` if not
/// all of them were made by known threads of the workload.
///
/// A thread makes one call after the other, within `whole_ns`. Calls that used files in a phase
/// began and ended in it.
fn most_ns(subject: &ShareSubject<'_>, truth: &Truth, whole_ns: u64) -> Option<u128> {
    let of_workload: BTreeSet<&[String]> = truth.threads.iter().map(|names| &names.thread[..]).collect();
    let threads: BTreeSet<&[String]> = subject.shares.iter().map(|share| &share.process.thread[..]).collect();
    if !threads.iter().all(|thread| !thread.is_empty() && of_workload.contains(thread)) {
        return None;
    }
    let by_threads = |ns: u64| u128::from(ns) * threads.len() as u128;
    let in_phases: Vec<&CallShare> = subject.phases.iter().flat_map(|(_, shares)| shares).copied().collect();
    let calls = subject.total(CountedUnit::Calls)?;
    let outside = calls.saturating_sub(total(&in_phases, CountedUnit::Calls)?);
    let by_phases = by_threads(truth.phases_ns).saturating_add(u128::from(outside) * u128::from(whole_ns));
    let are_files = subject.shares.iter().all(|share| share.is_file);
    Some(if are_files { by_phases.min(by_threads(whole_ns)) } else { by_threads(whole_ns) })
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

//! The course of cumulative figures from report to report.

use std::collections::{BTreeMap, BTreeSet};

use super::{FindingStatus, Tally};
use crate::{Counting, Form, Readings, Report, Sample};

/// Values of one figure and subject, in the order in which they were told.
fn series<'r>(report: &Report, readings: &'r Readings) -> BTreeMap<(usize, &'r Option<String>), Vec<&'r Sample>> {
    let mut series: BTreeMap<_, Vec<&Sample>> = BTreeMap::new();
    for sample in &readings.samples {
        if report.figures.get(sample.figure).is_some_and(|figure| figure.counting == Counting::Cumulative) {
            series.entry((sample.figure, &sample.subject)).or_default().push(sample);
        }
    }
    series
}

fn of(report: &Report, figure: usize, subject: Option<&str>) -> String {
    let value = report.figures.get(figure).map_or("", |figure| figure.value.as_str());
    subject.map_or_else(|| format!("`{value}`"), |subject| format!("`{value}` of {subject}"))
}

const NEEDS_TWO: &str = "no figure that counts cumulatively was reported twice";

pub(super) fn backwards(report: &Report, readings: &Readings) -> FindingStatus {
    let mut tally = Tally::default();
    for ((figure, subject), samples) in series(report, readings) {
        tally.evaluated |= samples.len() > 1;
        let fall = samples.iter().zip(samples.iter().skip(1)).find(|(earlier, later)| later.value < earlier.value);
        if let Some((earlier, later)) = fall {
            tally.evidence.push(format!(
                "{}: {} at {} ns, {} at {} ns",
                of(report, figure, subject.as_deref()),
                earlier.value,
                earlier.at_ns,
                later.value,
                later.at_ns
            ));
        }
    }
    tally.status(NEEDS_TWO)
}

/// The status, and the figures and subjects that vanished.
pub(super) fn vanish(report: &Report, readings: &Readings) -> (FindingStatus, Vec<(usize, Option<String>)>) {
    // Only a page or a map tells everything at once, so that what is not in it is not there.
    if !matches!(report.form, Form::Openmetrics { .. } | Form::Map { .. }) {
        return (
            FindingStatus::not_evaluated(
                "it reports line by line, so that what is missing may just not have been told",
            ),
            Vec::new(),
        );
    }
    let mut tally = Tally { evaluated: readings.reports.len() > 1, ..Tally::default() };
    let mut gone = Vec::new();
    let mut any = false;
    for ((figure, subject), samples) in series(report, readings) {
        any = true;
        let Some(first) = samples.first() else { continue };
        let told: BTreeSet<u64> = samples.iter().map(|sample| sample.at_ns).collect();
        let lacking = readings.reports.iter().find(|&&report| report > first.at_ns && !told.contains(&report));
        if let Some(lacking) = lacking {
            let last = samples.iter().rev().find(|sample| sample.at_ns < *lacking).unwrap_or(first);
            tally.evidence.push(format!(
                "{}: {} at {} ns, not there at {lacking} ns",
                of(report, figure, subject.as_deref()),
                last.value,
                last.at_ns
            ));
            gone.push((figure, subject.clone()));
        }
    }
    tally.evaluated &= any;
    (tally.status(NEEDS_TWO), gone)
}

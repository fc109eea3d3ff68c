// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cumulative figure loses a subject.

use std::collections::BTreeSet;

use crate::{
    Readings, Report, Sample,
    finding::{
        certainty::Certainty,
        course::{NEEDS_TWO, of, series},
        definition::{Definition, Known},
        figures::{Differences, Tally},
        status::FindingStatus,
    },
};

pub(super) const FINDING: Definition = Definition {
    name: "counts-vanish",
    explanation: "A figure that counts cumulatively had a cgroup, mount or process in an earlier report, and in a later one no more (a map that evicts). Not evaluated without two reports of such a figure.",
    explain: Some(explain),
    evaluate,
};

/// A subject that a report lacks which had been in an earlier one.
struct Gone<'r> {
    figure: usize,
    subject: &'r Option<String>,
    /// The last sample before the first such report.
    last: &'r Sample,
    lacking_ns: u64,
    /// What it had counted each time that it vanished.
    amount: u64,
}

/// Only a page or a map reports everything at once, so that what is not in it is not there.
const fn reports_all(report: &Report) -> bool {
    report.form.stream().is_none()
}

fn gone<'r>(report: &Report, readings: &'r Readings) -> Vec<Gone<'r>> {
    let of_one = |((figure, subject), samples): ((usize, &'r Option<String>), Vec<&'r Sample>)| {
        let first = samples.first()?;
        let reported: BTreeSet<u64> = samples.iter().map(|sample| sample.at_ns).collect();
        let lacking = readings.reports.iter().find(|&&report| report > first.at_ns && !reported.contains(&report))?;
        let last = samples.iter().rev().find(|sample| sample.at_ns < *lacking).unwrap_or(first);
        let mut amount = 0_u64;
        for (at, sample) in samples.iter().enumerate() {
            let until = samples.get(at + 1).map_or(u64::MAX, |next| next.at_ns);
            if readings.reports.iter().any(|&report| report > sample.at_ns && report < until) {
                amount = amount.saturating_add(sample.value);
            }
        }
        Some(Gone { figure, subject, last, lacking_ns: *lacking, amount })
    };
    if reports_all(report) { series(report, readings).into_iter().filter_map(of_one).collect() } else { Vec::new() }
}

/// What is missing of a subject that vanished is explained as far as it had been counted.
fn explain(_: &mut Tally, differences: &mut Differences<'_>) {
    for gone in gone(differences.report, differences.readings) {
        if gone.figure != differences.index {
            continue;
        }
        for one in &mut differences.comparisons {
            if gone.subject.as_ref().is_none_or(|name| one.subject.has_name(name)) {
                one.account(gone.amount, "vanished");
            }
        }
    }
}

fn evaluate(known: &Known<'_>) -> FindingStatus {
    let (report, readings) = match known.reported() {
        Ok(reported) => reported,
        Err(reason) => return FindingStatus::not_evaluated(reason),
    };
    if !reports_all(report) {
        return FindingStatus::not_evaluated(
            "it reports line by line, so that what is missing may just not have been reported",
        );
    }
    let gone = gone(report, readings);
    if gone.is_empty() && (readings.reports.len() < 2 || series(report, readings).is_empty()) {
        return FindingStatus::not_evaluated(NEEDS_TWO);
    }
    let shown = |Gone { figure, subject, last, lacking_ns, .. }: Gone<'_>| {
        let figure = of(report, figure, subject.as_deref());
        format!("{figure}: {} at {} ns, not there at {lacking_ns} ns", last.value, last.at_ns)
    };
    FindingStatus::from_evidence(Certainty::Proven, gone.into_iter().map(shown).collect())
}

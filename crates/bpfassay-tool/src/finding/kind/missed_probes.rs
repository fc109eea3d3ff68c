// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel skips probes.

use crate::finding::{
    certainty::Certainty,
    definition::{Definition, Known},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "missed-probes",
    explanation: "The kernel skipped probes: kprobe misses, or programs that were already running on their CPU. Not evaluated where the kernel does not report them.",
    explain: None,
    evaluate,
};

fn evaluate(known: &Known<'_>) -> FindingStatus {
    let counts = [
        (known.fact(|facts| facts.missed_probes), "kprobe hits ran no handler"),
        (known.fact(|facts| facts.recursion_misses), "times a program was already running on its CPU"),
    ];
    if counts.iter().all(|(count, _)| count.is_none()) {
        return FindingStatus::not_evaluated("the kernel does not report missed probes");
    }
    let some = counts.into_iter().filter_map(|(count, what)| Some((count.filter(|&count| count > 0)?, what)));
    FindingStatus::from_evidence(Certainty::Reported, some.map(|(count, what)| format!("{count} {what}")).collect())
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool uses CPU time while nothing happens.

use crate::finding::{
    definition::{Definition, KindInputs},
    finding_source::{KindSources, Source},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "idle-cpu",
    explanation: "It used more than the limit (1 %) of a CPU while nothing happened. Not evaluated where it was not measured.",
    sources: KindSources::Of(&[Source::IdleTime]),
    clear: "it used no more than the limit",
    explain: None,
    evaluate,
};

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let limit = known.limits.idle_cpu_ppm;
    let Some((used, lasted)) = known.fact(|facts| facts.idle_cpu).filter(|(_, lasted)| *lasted > 0) else {
        return FindingStatus::not_evaluated("not measured");
    };
    let share = u128::from(used) * 1_000_000 / u128::from(lasted);
    FindingStatus::of_limit(Some(share), limit.into(), |share| {
        format!("{used} ns of CPU time in {lasted} ns: {share} millionths of a CPU; limit {limit}")
    })
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool uses much memory.

use crate::finding::{
    definition::{Definition, KindInputs},
    finding_source::{KindSources, Source},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "memory-held",
    explanation: "It holds more memory than the limit (128 MiB), BPF maps included. Not evaluated where it was not measured, or not of each program and map, or on Linux 5.11 to 6.3, which report only the keys and values of maps.",
    sources: KindSources::Of(&[Source::Memory]),
    clear: "it held no more than the limit",
    explain: None,
    evaluate,
};

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let limit = known.limits.memory_bytes;
    let memory = known.fact(|facts| facts.memory_bytes);
    let status = FindingStatus::of_limit(memory, limit, |bytes| format!("{bytes} bytes; limit {limit}"));
    // Unknown memory can only add to the sum.
    status.unless_lacking(known.fact(|facts| facts.memory_lacks.clone()))
}

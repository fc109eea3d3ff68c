// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool holds much memory.

use crate::finding::{
    definition::{Definition, Known},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "memory-held",
    explanation: "It holds more memory than the limit (128 MiB), BPF maps included. Not evaluated where it was not measured.",
    explain: None,
    evaluate,
};

fn evaluate(known: &Known<'_>) -> FindingStatus {
    let limit = known.limits.memory_bytes;
    let memory = known.fact(|facts| facts.memory_bytes);
    FindingStatus::of_limit(memory, limit, |bytes| format!("{bytes} bytes; limit {limit}"))
}

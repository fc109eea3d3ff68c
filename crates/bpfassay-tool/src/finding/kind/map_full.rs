// SPDX-License-Identifier: MIT OR Apache-2.0
//! A map has no free entry.

use crate::finding::{
    certainty::Certainty,
    definition::{Definition, KindInputs},
    finding_source::{KindSources, Source},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "map-full",
    explanation: "A map that had free entries has none after a phase: the kernel refuses each further key. Maps that evict keys, and those with one entry, are left out. Keys that just fit look the same. Not evaluated where the keys of one of its maps were not counted, or it has no map with keys.",
    sources: KindSources::Of(&[Source::Keys]),
    clear: "each of its maps with keys had a free entry after each phase",
    explain: None,
    evaluate,
};

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let Some(full) = known.fact(|facts| facts.full_maps.clone()) else {
        return FindingStatus::not_evaluated("the keys of its maps were not counted");
    };
    // A loader can fill a map on purpose, and the single key of a map may be fixed.
    let became_full = full.iter().filter(|map| map.had_room && map.entries > 1);
    let evidence: Vec<String> = became_full.map(ToString::to_string).collect();
    let status = FindingStatus::from_evidence(Certainty::Reported, evidence);
    status.unless_lacking(known.fact(|facts| facts.keys_lacks.clone()))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requested bytes reported as moved bytes.

use crate::{
    file::CountedUnit,
    finding::{
        certainty::Certainty,
        definition::Definition,
        finding_comparison::shown,
        finding_figures::{Differences, EvidenceTally},
        finding_source::KindSources,
    },
};

pub(super) const FINDING: Definition = Definition {
    name: "requested-as-moved",
    explanation: "A figure of bytes returned is exactly the bytes requested, which were others. Not evaluated where a figure of bytes returned could not be compared, no call moved less than it was asked to, or the requested bytes are not known, or the tool reports no bytes returned.",
    sources: KindSources::Figures(|unit, _| unit == CountedUnit::BytesReturned),
    clear: "no figure of bytes returned is the bytes requested, where those were others",
    explain: Some(explain),
    evaluate: |known| {
        known.of_figures(
            "no figure of bytes returned of calls that moved less than they were asked to, with both known",
            Vec::new(),
        )
    },
};

fn explain(tally: &mut EvidenceTally, differences: &mut Differences<'_>) {
    if differences.figure.unit != CountedUnit::BytesReturned {
        return;
    }
    // Phases with known requested bytes explain the whole run.
    if differences.is_requested {
        tally.evaluated = true;
        let too_high = differences.comparisons.iter_mut().filter(|one| one.reported > one.at_most);
        too_high.for_each(|one| one.explained = true);
    }
    for one in &mut differences.comparisons {
        let Some(requested) = one.asked() else { continue };
        tally.evaluated = true;
        if one.is_asked() {
            let certainty = if one.slack == 0 { Certainty::Proven } else { Certainty::Fitting };
            let text = format!("{}; {requested} were requested", shown(differences.figure, one));
            tally.evidence.push(certainty.line(text));
            one.explained = true;
        }
    }
}

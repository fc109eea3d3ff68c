// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of the tool cannot be read.

use crate::finding::{
    absent,
    certainty::Certainty,
    definition::{Definition, KindInputs},
    finding_source::{KindSources, Source},
    status::FindingStatus,
};

pub(super) const FINDING: Definition = Definition {
    name: "unreadable",
    explanation: "Its output could not be read as its tool file describes, or no report has a name of the tool file, though what that counts happened. Not evaluated where it reports no figures, reported nothing or more than was looked at, or nothing of what a name counts that no report has is known to have happened.",
    sources: KindSources::Of(&[Source::Figures, Source::Reports]),
    clear: "each of its reports was read, and has what its tool file names",
    explain: None,
    evaluate,
};

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let Some(readings) = known.evidence.readings else {
        return FindingStatus::not_evaluated(known.reported().err().unwrap_or("it reports no figures"));
    };
    let first = readings.first_unread.as_deref().unwrap_or_default();
    let unread =
        (readings.unread > 0).then(|| Certainty::Proven.line(format!("{} times; first: {first}", readings.unread)));
    let (absent, open) = match known.figures {
        Ok(figures) => (figures.names.absent.clone(), figures.names.open.clone()),
        // There is no truth to compare names with.
        Err(_) => (Vec::new(), readings.absent.iter().map(absent::open).collect()),
    };
    let lines: Vec<_> = unread.into_iter().chain(absent).collect();
    let unheard = known.evidence.report.and_then(|_| readings.unheard());
    match open.into_iter().next().or(unheard).filter(|_| lines.is_empty()) {
        Some(reason) => FindingStatus::not_evaluated(reason),
        None => FindingStatus::from_lines(lines),
    }
}

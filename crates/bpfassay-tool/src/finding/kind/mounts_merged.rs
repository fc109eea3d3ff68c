// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several mounts are counted as one.

use crate::{
    file::Whose,
    finding::{definition::Definition, finding_source::KindSources, merged},
};

pub(super) const FINDING: Definition = Definition {
    name: "mounts-merged",
    explanation: "Figures by mount: one mount has what several moved, the others have nothing. Not evaluated where a figure by mount could not be compared, operations went to fewer than two mounts, or no figure is by mount.",
    sources: KindSources::Figures(|_, whose| whose == Whose::Mount),
    clear: "each mount has what it did, or less",
    explain: Some(|tally, differences| merged::explain(tally, differences, Whose::Mount)),
    evaluate: |known| known.of_figures("no figure by mount of operations on two mounts and more", Vec::new()),
};

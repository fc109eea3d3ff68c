// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several cgroups are counted as one.

use crate::{
    file::Whose,
    finding::{definition::Definition, finding_source::KindSources, merged},
};

pub(super) const FINDING: Definition = Definition {
    name: "cgroups-merged",
    explanation: "Figures by cgroup: one cgroup has what several moved, the others have nothing. Not evaluated where a figure by cgroup could not be compared, operations were done in fewer than two cgroups, or no figure is by cgroup.",
    sources: KindSources::Figures(|_, whose| whose == Whose::Cgroup),
    clear: "each cgroup has what it did, or less",
    explain: Some(|tally, differences| merged::explain(tally, differences, Whose::Cgroup)),
    evaluate: |known| known.of_figures("no figure by cgroup of operations in two cgroups and more", Vec::new()),
};

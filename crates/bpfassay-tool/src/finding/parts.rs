// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of what happened: the path that a tool may not have seen.

use std::collections::BTreeMap;

use super::{comparison::Comparison, truth::total};
use crate::{ReportedFigure, Whose};

/// Most parts that are named.
const MOST_PARTS: usize = 4;

/// Parts of what happened that are exactly what is missing, as `mount /mnt`: of one operation, mount, cgroup, process or phase of the workload. Of a
/// subject that is one part only, this says nothing.
pub(super) fn missing(figure: &ReportedFigure, one: &Comparison<'_>) -> Vec<String> {
    let mut parts: BTreeMap<String, u64> = BTreeMap::new();
    for share in &one.subject.shares {
        let Some(amount) = share.amount(figure.unit) else { continue };
        let of = |whose: Whose| share.names(whose).first().map(|name| format!("{} {name}", whose.name()));
        let named = [Whose::Mount, Whose::Cgroup, Whose::Process].into_iter().filter_map(of);
        for part in named.chain([format!("operation {}", share.operation)]) {
            let sum = parts.entry(part).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    for (name, shares) in &one.subject.phases {
        parts.extend(total(shares, figure.unit).map(|amount| (format!("phase {name}"), amount)));
    }
    let is_missing = |(_, amount): &(String, u64)| *amount > 0 && *amount < one.expected && one.lacks(*amount);
    parts.into_iter().filter(is_missing).map(|(part, _)| part).take(MOST_PARTS).collect()
}

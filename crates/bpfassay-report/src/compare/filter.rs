// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of two results that a comparison covers.

use std::collections::BTreeSet;

use bpfassay_protocol::{Operation, ProbeConfiguration};
use bpfassay_study::{MetricName, nearest};
use serde::{Deserialize, Serialize};

use super::{CellComparison, Fate, MetricComparison, NotComparable};

/// The part of two results that a comparison covers. An empty list matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Probe configurations and tools; `none` for the baseline.
    pub probes: Vec<String>,
    /// Names of metrics.
    pub metrics: Vec<String>,
    /// Operations whose metrics are compared: their bandwidths and the times of their calls.
    pub accesses: Vec<Operation>,
}

impl Filter {
    /// Whether the filter matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.probes.is_empty() && !self.is_of_metrics()
    }

    /// Whether the filter selects metrics, and so leaves out pitfalls, findings and programs.
    fn is_of_metrics(&self) -> bool {
        !self.metrics.is_empty() || !self.accesses.is_empty()
    }

    /// Removes everything from `cells` that the filter does not match.
    ///
    /// # Errors
    /// [`NotComparable::Filter`] for an unknown name, and if nothing is left. The error lists the
    /// names that exist.
    pub(super) fn apply(&self, cells: &mut Vec<CellComparison>) -> Result<(), NotComparable> {
        if self.is_empty() {
            return Ok(());
        }
        let probes: Vec<String> = self.probes.iter().map(|name| whole_name(name)).collect();
        let metrics = || cells.iter().flat_map(|cell| &cell.metrics);
        known_names("--probe", &probes, cells.iter().map(|cell| cell.under_test.as_str()).collect(), None)?;
        known_names("--metric", &self.metrics, metrics().map(|metric| &*metric.metric).collect(), None)?;
        let accesses: Vec<String> = self.accesses.iter().map(ToString::to_string).collect();
        let of_some = metrics().filter_map(|metric| metric.access.map(|access| access.name())).collect();
        known_names("--access", &accesses, of_some, None)?;
        let all = rows(cells);
        cells.retain(|cell| probes.is_empty() || probes.contains(&cell.under_test));
        if self.is_of_metrics() {
            for cell in cells.iter_mut() {
                cell.metrics.retain(|metric| self.takes(metric));
                (cell.findings_new, cell.findings_gone, cell.programs) = (Vec::new(), Vec::new(), Vec::new());
                (cell.faults_new, cell.faults_gone) = (Vec::new(), Vec::new());
            }
            cells.retain(|cell| cell.fate != Fate::Compared || !cell.metrics.is_empty());
        }
        if cells.is_empty() {
            let problem = format!("nothing is left of it; the two have {}", all.join(", "));
            return Err(NotComparable::Filter { problem });
        }
        Ok(())
    }

    fn takes(&self, metric: &MetricComparison) -> bool {
        let is_named = self.metrics.is_empty() || self.metrics.iter().any(|name| *name == *metric.metric);
        let is_of = self.accesses.is_empty() || metric.access.is_some_and(|access| self.accesses.contains(&access));
        is_named && is_of
    }
}

/// Returns the name of a probe configuration as results have it, without parts that are defaults,
/// and any other name unchanged.
fn whole_name(name: &str) -> String {
    name.parse::<ProbeConfiguration>().map_or_else(|_| name.to_owned(), |probe| probe.to_string())
}

/// Refuses names that are not in `known`: the names in both results, of which neither has the name,
/// or in `side`.
pub(super) fn known_names(
    option: &str,
    names: &[String],
    known: BTreeSet<&str>,
    side: Option<&str>,
) -> Result<(), NotComparable> {
    let Some(unknown) = names.iter().find(|name| !known.contains(name.as_str())) else { return Ok(()) };
    let near = nearest(unknown, known.iter().copied());
    let hint = near.map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default();
    let all = if known.is_empty() { "none".to_owned() } else { known.into_iter().collect::<Vec<_>>().join(", ") };
    let lacking = side.map_or_else(|| "neither has".to_owned(), |side| format!("{side} do not have"));
    let problem = format!("{option} names `{}`, which {lacking}{hint}; there are: {all}", unknown.escape_debug());
    Err(NotComparable::Filter { problem })
}

/// Lists what can be selected, such as `fexit (read, write)`.
fn rows(cells: &[CellComparison]) -> Vec<String> {
    let of = |cell: &CellComparison| {
        let metrics: BTreeSet<&MetricName> = cell.metrics.iter().map(|metric| &metric.metric).collect();
        let names: Vec<&str> = metrics.into_iter().map(|name| &**name).collect();
        format!("{} ({})", cell.under_test, if names.is_empty() { "no figures".to_owned() } else { names.join(", ") })
    };
    cells.iter().map(of).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest_one_and_the_side_that_lacks_it() {
        let refused = |name: &str, side| {
            let known = BTreeSet::from(["fexit", "kprobe"]);
            known_names("--tool", &[name.to_owned()], known, side).map_err(|error| error.to_string())
        };
        assert_eq!(refused("fexit", None), Ok(()));
        let neither = refused("fexot", None).unwrap_err();
        assert!(neither.contains("`fexot`, which neither has (did you mean `fexit`?)"), "{neither}");
        let base = refused("fexot", Some("the base results")).unwrap_err();
        assert!(base.contains("`fexot`, which the base results do not have (did you"), "{base}");
    }
}

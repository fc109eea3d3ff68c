// SPDX-License-Identifier: MIT OR Apache-2.0
//! The level of intervals: under sequential sampling, each look gets a share of the error.

use std::collections::BTreeSet;

use bpfassay_stats::{Bounds, Estimate, Interval, StatsError, sequential::Sampling};
use bpfassay_study::{Plan, StudyDesign};

/// Nominal coverage of intervals.
pub(crate) const LEVEL: f64 = 0.95;

/// The declared layout terms of metrics. A term is a standard deviation as a share of the time. It
/// is the effect of another layout of addresses and of free memory on an overhead, beyond what the
/// rounds of a boot show. Boots with different seeds show this effect themselves. Rounds of one
/// boot do not, nor do boots of one kernel build compared with another. The terms are the largest
/// of all rows of ten boots of `quick` on its eight targets, rounded up (results/seeds.md, *beyond
/// the rounds*).
const LAYOUTS: &[(&str, f64)] =
    &[("read-call", 0.000_07), ("write-call", 0.000_08), ("read", 0.000_12), ("write", 0.000_05)];

/// The term of metrics that were not measured with several seeds.
const OTHER_LAYOUT: f64 = 0.001;

pub(crate) fn layout(metric: &str) -> f64 {
    term(LAYOUTS, metric)
}

/// The declared terms of metrics along a series of kernels, in the same form. Another build also
/// has other code, which seeds do not show. The values are the differences between boots of an
/// earlier guest, which measured results/kernel-series (commit 83993ff).
const BUILDS: &[(&str, f64)] =
    &[("read-call", 0.000_12), ("write-call", 0.000_12), ("read", 0.000_35), ("write", 0.001)];

/// Returns the declared term of a metric along a series of kernels.
pub(crate) fn layout_of_build(metric: &str) -> f64 {
    term(BUILDS, metric)
}

fn term(declared: &[(&str, f64)], metric: &str) -> f64 {
    declared.iter().find(|(name, _)| *name == metric).map_or(OTHER_LAYOUT, |(_, term)| *term)
}

/// Formats the layout terms of these metrics: `0.012 % of read, 0.005 % of write`; `None` without
/// metrics.
pub(crate) fn layouts<'a>(metrics: impl Iterator<Item = &'a str>) -> Option<String> {
    let metrics: BTreeSet<&str> = metrics.collect();
    let term = |metric: &&str| format!("{} % of {metric}", (layout(metric) * 1e5).round() / 1e3);
    (!metrics.is_empty()).then(|| metrics.iter().map(term).collect::<Vec<_>>().join(", "))
}

/// Returns when to look at intervals, if the plan samples sequentially.
pub(crate) fn design(plan: &Plan) -> Option<Sampling> {
    let until = plan.until()?;
    let (first, most) = (StudyDesign::FEWEST_UNTIL as usize, plan.replicates() as usize);
    // The expansion of a study refuses impossible designs. A journal that was edited to have one
    // has all boots done.
    Sampling::new(until.value(), LEVEL, first, most).ok()
}

/// Returns the number of looks; 1 for a plan with a fixed number of boots.
pub(crate) fn looks(plan: &Plan) -> usize {
    design(plan).map_or(1, |sampling| sampling.looks().len())
}

/// How intervals are computed under a plan: the nominal level, and the level that holds over all
/// looks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Levels {
    at: f64,
}

/// Returns the nominal level of each interval, whatever level then holds over all looks.
pub(crate) fn level_at_a_look(plan: &Plan) -> f64 {
    design(plan).map_or(LEVEL, |sampling| sampling.level_at_a_look())
}

impl Levels {
    pub(super) fn of(plan: &Plan) -> Self {
        Self { at: level_at_a_look(plan) }
    }

    /// Returns the estimate that `make` computes at the nominal level. The interval is marked with
    /// the level that holds over all looks.
    ///
    /// # Errors
    /// The error of `make`.
    pub(super) fn estimate(
        self,
        make: impl FnOnce(f64) -> Result<Estimate, StatsError>,
    ) -> Result<Estimate, StatsError> {
        let mut estimate = make(self.at)?;
        if let Bounds::Interval(Interval { level, .. }) = &mut estimate.bounds {
            *level = LEVEL;
        }
        Ok(estimate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_layout_term_is_less_than_what_ten_seeds_showed() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/seeds.md")).unwrap();
        let table = page.split("| the largest of any row, % |").nth(1).unwrap();
        let rows = table.lines().skip(2).take_while(|line| line.starts_with("| "));
        let mut known = 0;
        for row in rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let (metric, shown) = (cells[1], cells[4].parse::<f64>().unwrap() / 100.0);
            // The term is not much larger either: that would hide real effects.
            assert!(layout(metric) >= shown && layout(metric) < shown + 0.000_03, "{row}: {}", layout(metric));
            known += 1;
        }
        assert_eq!(known, LAYOUTS.len());
        assert!(LAYOUTS.iter().all(|(metric, layout)| layout_of_build(metric) >= *layout));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! At which level intervals are made: under sequential sampling each look has a share of the error.

use bpfassay_stats::{Bounds, Estimate, Interval, StatsError, sequential::Sampling};
use bpfassay_study::{Design, Plan};

/// Nominal coverage of intervals.
pub(crate) const LEVEL: f64 = 0.95;

/// The declared layout term: the standard deviation, as a share of the time, of what another layout of addresses does to a figure. Boots
/// with seeds of their own show it themselves; rounds of one boot, and boots of one build of a kernel beside another, do not.
pub(crate) const LAYOUT: f64 = 0.0005;

/// When to look at intervals, where the plan samples sequentially.
pub(crate) fn design(plan: &Plan) -> Option<Sampling> {
    let until = plan.until()?;
    let (first, most) = (Design::FEWEST_UNTIL as usize, plan.replicates() as usize);
    // What cannot be had was refused when the study was expanded; a journal that was edited has all its boots done.
    Sampling::new(until.value(), LEVEL, first, most).ok()
}

/// How many looks there are; 1 for a plan whose boots are fixed.
pub(crate) fn looks(plan: &Plan) -> usize {
    design(plan).map_or(1, |sampling| sampling.looks().len())
}

/// How intervals are made under a plan: at which level, and what level they then hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Levels {
    at: f64,
}

/// The level at which each interval is made, whatever level it then holds.
pub(crate) fn level_at_a_look(plan: &Plan) -> f64 {
    design(plan).map_or(LEVEL, |sampling| sampling.level_at_a_look())
}

impl Levels {
    pub(super) fn of(plan: &Plan) -> Self {
        Self { at: level_at_a_look(plan) }
    }

    /// The estimate that `make` gives at a level, with its interval marked by what it holds over all looks.
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

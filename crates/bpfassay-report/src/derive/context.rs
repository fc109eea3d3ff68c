// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indexes that every cell needs, made once: searching them for each of 15,000 cells and 200,000
//! runs would take hours.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bpfassay_stats::{Effect, Spread, StatsError, power};
use bpfassay_study::{Cell, Plan, PlannedRun};

use super::{
    code_coverage::Coverages,
    direct::BootCounts,
    levels::{Levels, looks},
    lookup::{ByCell, RunPlace, place, positions},
};
use bpfassay_results::{Provenance, RunResult};

/// The power of the minimum detectable effect: the customary 80 % (Cohen, 1988, section 2.4).
const POWER: f64 = 0.8;

pub(super) struct DeriveContext<'a> {
    pub(super) plan: &'a Plan,
    pub(super) provenance: &'a [Provenance],
    pub(super) levels: Levels,
    /// The number of looks of sequential sampling; 1 if the number of boots is fixed.
    pub(super) looks: usize,
    pub(super) counts: &'a BootCounts,
    pub(super) coverages: &'a Coverages,
    runs: &'a ByCell<'a>,
    baselines: HashMap<RunPlace<'a>, &'a Cell>,
    planned: HashMap<&'a str, u32>,
    order: HashMap<&'a str, u64>,
    /// Results of [`Self::detectable`] by degrees of freedom, which many rows share: each
    /// computation takes milliseconds.
    detectable: Mutex<HashMap<u64, Option<f64>>>,
}

impl<'a> DeriveContext<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        provenance: &'a [Provenance],
        runs: &'a ByCell<'a>,
        counts: &'a BootCounts,
        coverages: &'a Coverages,
    ) -> Self {
        let is_counted = |run: &PlannedRun| !run.control && !run.spec.bpf_stats && !run.warm_up && !run.has_reference();
        let mut planned = HashMap::new();
        for (_, run) in plan.runs().filter(|(_, run)| is_counted(run)) {
            let count: &mut u32 = planned.entry(run.cell.as_str()).or_default();
            *count = count.saturating_add(1);
        }
        let mut baselines = HashMap::new();
        for cell in plan.cells.iter().filter(|cell| cell.is_baseline()) {
            baselines.entry(place(cell)).or_insert(cell);
        }
        Self {
            plan,
            provenance,
            levels: Levels::of(plan),
            looks: looks(plan),
            counts,
            coverages,
            runs,
            baselines,
            planned,
            order: positions(plan),
            detectable: Mutex::default(),
        }
    }

    /// Returns the runs of the cell with this id.
    pub(super) fn runs_of(&self, cell: &str) -> &'a [&'a RunResult] {
        self.runs.get(cell).map_or(&[], Vec::as_slice)
    }

    /// Returns the first baseline that `cell` is compared with; for a baseline, the cell itself.
    pub(super) fn baseline_of(&self, cell: &Cell) -> Option<&'a Cell> {
        self.baselines.get(&place(cell)).copied()
    }

    /// Returns how many planned runs contribute to the figures of the cell.
    pub(super) fn planned(&self, cell: &str) -> u32 {
        self.planned.get(cell).copied().unwrap_or(0)
    }

    fn known_detectable(&self) -> MutexGuard<'_, HashMap<u64, Option<f64>>> {
        self.detectable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the smallest ratio that `effect` shows with the power [`POWER`], by the interval's
    /// standard error and degrees of freedom. `None` without an interval.
    ///
    /// # Errors
    /// [`StatsError`] for an error rate or degrees of freedom out of range.
    pub(super) fn detectable(&self, effect: &Effect) -> Result<Option<f64>, StatsError> {
        let alpha = self.plan.study.design.certainty.error_rate.value() / self.looks as f64;
        let Spread::Student { degrees_of_freedom, .. } = effect.spread else { return Ok(None) };
        let freedom = power::rounded_freedom(degrees_of_freedom);
        let known = self.known_detectable().get(&freedom.to_bits()).copied();
        let shift = match known {
            Some(known) => known,
            None => {
                let found = power::detectable_shift(alpha, freedom, POWER)?;
                self.known_detectable().insert(freedom.to_bits(), found);
                found
            }
        };
        Ok(shift.and_then(|shift| power::ratio_of(shift, &effect.spread)))
    }

    /// Returns the position of a run in the order of the plan.
    pub(super) fn order(&self, run: &str) -> Option<u64> {
        self.order.get(run).copied()
    }
}

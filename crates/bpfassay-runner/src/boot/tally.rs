// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts what became of runs: the runs of a block, and all runs of a plan.

use std::collections::BTreeMap;

use bpfassay_results::{Outcome, RunRecord};

/// How the execution of a plan ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolSummary {
    /// Number of runs that were measured.
    pub measured: usize,
    /// Number of runs whose tracer the kernel refused.
    pub refused: usize,
    /// Number of runs that failed.
    pub failed: usize,
    /// Number of blocks that were reused from a store. The other numbers include their runs.
    pub reused: usize,
    /// Whether the execution was cancelled.
    pub cancelled: bool,
    /// Why blocks are left that were not begun, if so.
    pub paused: Option<String>,
}

impl PoolSummary {
    /// Adds the numbers of `part`.
    pub fn add(&mut self, part: &Self) {
        self.measured += part.measured;
        self.refused += part.refused;
        self.failed += part.failed;
        self.reused += part.reused;
    }
}

/// Counts the outcomes of the runs, by each run's last record.
#[derive(Debug, Default)]
pub struct Tally {
    runs: BTreeMap<String, TalliedOutcomes>,
}

#[derive(Debug, Clone, Copy)]
enum TalliedOutcomes {
    Measured,
    Refused,
    Failed,
}

impl Tally {
    pub(crate) fn take(&mut self, record: &RunRecord) {
        let came = match record.outcome {
            Outcome::Measured(_) => TalliedOutcomes::Measured,
            Outcome::Refused(_) => TalliedOutcomes::Refused,
            Outcome::Failed(_) => TalliedOutcomes::Failed,
        };
        self.runs.insert(record.run.clone(), came);
    }

    /// Counts the runs of each outcome.
    #[must_use]
    pub fn summary(&self) -> PoolSummary {
        let mut summary = PoolSummary::default();
        for came in self.runs.values() {
            match came {
                TalliedOutcomes::Measured => summary.measured += 1,
                TalliedOutcomes::Refused => summary.refused += 1,
                TalliedOutcomes::Failed => summary.failed += 1,
            }
        }
        summary
    }
}

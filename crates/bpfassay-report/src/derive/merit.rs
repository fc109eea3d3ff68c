// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of merit: what workloads that are not IOR report of their work.

use bpfassay_stats::Summary;

use super::pairs::summary;
use bpfassay_results::{Access, Figure, Merit, RunAccess};

/// The row of a figure of merit.
pub(super) fn access(access: Access, merit: Merit<f64>) -> RunAccess {
    let not_ior = || Figure::missing("only IOR reports bandwidths");
    RunAccess {
        access,
        bandwidth_mib_s: not_ior(),
        merit: Some(merit),
        relative_error_ior_interval: not_ior(),
        relative_error_instantaneous: not_ior(),
        work: Figure::missing("the workload's operations are not calls"),
        repetitions: Vec::new(),
    }
}

/// Those of several runs; `None` where they have none.
pub(super) fn of_runs<'a>(runs: impl Iterator<Item = &'a RunAccess> + Clone, why_none: &str) -> Option<Merit<Summary>> {
    let merits = runs.filter_map(|run| run.merit.as_ref());
    let first = merits.clone().next()?;
    let figure = summary(merits.map(|merit| &merit.figure), why_none);
    Some(Merit { figure, unit: first.unit.clone(), better: first.better })
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bystander: the cost of a tool for a process that the tool is not meant to trace.

use bpfassay_protocol::{
    Operation,
    message::{BYSTANDER_PREFIX, RunFigures},
};
use bpfassay_results::{BystanderCalls, BystanderCost, Figure, NO_COUNTS, RunResult};
use bpfassay_study::{Cell, MetricName};

use super::{context::DeriveContext, cost};

/// The phases of a bystander that move data. Checks of data are not measured.
const PHASES: [(Operation, &str); 2] = [(Operation::Write, "write"), (Operation::Read, "read")];

/// Derives the calls of the bystander of a run, in a guest of `cpus` CPUs.
pub(super) fn of_run(figures: &RunFigures, cpus: u32) -> Vec<BystanderCalls> {
    let Some(bystander) = &figures.bystander else { return Vec::new() };
    let calls = |(operation, name)| {
        let name = format!("{BYSTANDER_PREFIX}{name}");
        bystander.phases.iter().find(|phase| phase.name == name)?;
        let work = cost::work(figures, &name, cost::moved(operation), cpus);
        Some(BystanderCalls { name: name.parse().ok()?, direct_cost: None, work })
    };
    PHASES.into_iter().filter_map(calls).collect()
}

/// Derives the costs of the bystander's calls in `runs` of `cell`. `why_none` tells why no run was
/// measured.
pub(super) fn of_cell(
    context: &DeriveContext<'_>,
    cell: &Cell,
    runs: &[&RunResult],
    baseline: &[&RunResult],
    why_none: &str,
) -> Vec<BystanderCost> {
    if cell.is_baseline() || cell.workload.bystander.is_none() {
        return Vec::new();
    }
    let base: Vec<&RunResult> = baseline.iter().filter(|run| run.record.is_counted()).copied().collect();
    let calls = |run: &RunResult| {
        run.derived.iter().flat_map(|derived| &derived.bystander).map(|calls| calls.name).collect::<Vec<MetricName>>()
    };
    let is_measured = runs.iter().any(|run| !calls(run).is_empty());
    // If this cell was never measured, the baseline shows which calls there are.
    let names = runs.iter().chain(&base).map(|run| calls(run)).find(|names| !names.is_empty()).unwrap_or_default();
    let model = context.plan.study.model.as_ref();
    let cost = |name: MetricName| match is_measured {
        false => BystanderCost { name, direct: Figure::missing(why_none), cost: Figure::missing(why_none) },
        true => BystanderCost {
            name,
            direct: context.counts.direct(&base, runs, &name, model).unwrap_or_else(|| Figure::missing(NO_COUNTS)),
            cost: cost::cost(context, &base, runs, &name),
        },
    };
    names.into_iter().map(cost).collect()
}

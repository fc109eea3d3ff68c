// SPDX-License-Identifier: MIT OR Apache-2.0
//! Derives overheads and costs of recorded results again from the figures of their runs, so that
//! intervals and detectable effects are as this version computes them. Direct costs and other
//! figures that need more than the results hold stay as recorded.

use bpfassay_results::{CellMetric, Results};

use super::{
    cells, code_coverage::Coverages, context::DeriveContext, direct::BootCounts, gates, in_order, lookup::by_cell,
    pooled,
};

/// Derives the overheads and costs of `results` again.
#[must_use]
pub fn overheads_again(results: Results) -> Results {
    let (counts, coverages) = (BootCounts::default(), Coverages::default());
    let mut of_cell = by_cell(&results.runs);
    in_order(&results.plan, &mut of_cell);
    let context = DeriveContext::new(&results.plan, &results.provenance, &of_cell, &counts, &coverages);
    let mut again = cells::derive(&context);
    pooled::derive(&context, &mut again);
    if results.plan.shard.is_none() {
        gates::negligible(&context, &mut again);
    }
    drop(context);
    drop(of_cell);
    let mut results = results;
    for cell in &mut results.cells {
        let Some(new) = again.iter_mut().find(|new| new.cell == cell.cell) else { continue };
        for metric in &mut cell.metrics {
            let Some(new) = new.metrics.iter().find(|new| new.name == metric.name).cloned() else { continue };
            let CellMetric { overhead, control, cost, control_cost, .. } = new;
            *metric = CellMetric { overhead, control, cost, control_cost, ..metric.clone() };
        }
    }
    results
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The points of a series with their noise: the spread of replicates, and the layout term.

use bpfassay_stats::{Spread, Summary, change_points::Point, difference::variance_of};
use bpfassay_study::{Clock, Plan};

use super::Quantity;
use crate::derive::{
    direct::OF_SEEDS,
    levels::{layout_of_build, level_at_a_look},
    pairs::metric_of,
};
use bpfassay_results::{Basis, CellMetric, Cost, Figure, NO_COUNTS, Pooled, RunResult, Unit};

#[derive(Debug, Clone, Copy)]
struct Replicates {
    /// Squared standard error.
    variance: f64,
    degrees_of_freedom: f64,
    unit: Unit,
    boots: f64,
}

impl Replicates {
    /// Summarises `n` observations; without a variance, they show nothing.
    fn new(variance: Option<f64>, n: usize, unit: Unit) -> Self {
        let degrees_of_freedom = if variance.is_some() { n as f64 - 1.0 } else { 0.0 };
        let boots = if unit == Unit::Boots { n as f64 } else { 1.0 };
        Self { variance: variance.unwrap_or(0.0), degrees_of_freedom, unit, boots }
    }

    /// Creates the point of a figure with the logarithm `log` and its `layout` term. Under the wall
    /// clock, rounds of one boot do not show how much boots vary; only the other points do.
    fn point(self, clock: Clock, log: f64, layout: f64) -> Point {
        let Self { variance, degrees_of_freedom, unit, boots } = self;
        let shows_nothing = clock == Clock::Wall && unit == Unit::Rounds;
        Point {
            log_ratio: log,
            variance,
            degrees_of_freedom: if shows_nothing { 0.0 } else { degrees_of_freedom },
            layout: layout.powi(2) / boots,
        }
    }
}

/// Returns the figure of a cell with these `runs`, and its point on the log scale with its noise.
pub(super) fn value(
    plan: &Plan,
    runs: &[&RunResult],
    figures: &CellMetric,
    quantity: Quantity,
) -> (Figure<f64>, Option<Point>) {
    let clock = plan.study.clock;
    match quantity {
        Quantity::InstructionsPerCall => {
            let value = figures.cost.clone().map(|cost| cost.per_call.value);
            let point = figures.cost.value().and_then(|cost| {
                let replicates = of_cost(plan, cost)?;
                Some(replicates.point(
                    clock,
                    cost.per_call.value.ln(),
                    layout_of_build(&figures.name) * scale(cost, &figures.name, runs),
                ))
            });
            (value, point)
        }
        Quantity::DirectCost => {
            let direct = figures.direct.clone().unwrap_or_else(|| Figure::missing(NO_COUNTS));
            let point = direct.value().filter(|direct| direct.per_call.mean > 0.0).map(|direct| {
                // Rounds agree almost exactly, and do not show how much other layouts differ.
                of_summary(plan, &direct.per_call).point(clock, direct.per_call.mean.ln(), OF_SEEDS / 2.0)
            });
            (direct.map(|direct| direct.per_call.mean), point)
        }
        Quantity::Overhead => {
            let point = figures.overhead.value().map(|found| {
                let variance = shown(&found.effect.spread, found.pooled.as_ref());
                Replicates::new(variance, found.effect.n, found.unit).point(
                    clock,
                    found.effect.log_ratio,
                    layout_of_build(&figures.name),
                )
            });
            (figures.overhead.clone().map(|overhead| overhead.estimate.value), point)
        }
        Quantity::Bandwidth | Quantity::TimePerCall => {
            let value = match figures.operation.is_some() || figures.calls_of.is_some() {
                true => figures.value.clone(),
                false => Figure::missing("only IOR reports bandwidths"),
            };
            let point = value.value().map(|summary| {
                of_summary(plan, summary).point(clock, summary.center().ln(), layout_of_build(&figures.name))
            });
            (value.map(|summary| summary.center()), point)
        }
    }
}

/// Returns the squared standard error that the observations show. It excludes the layout term of a
/// single boot, because points have separate layout terms.
fn shown(spread: &Spread, pooled: Option<&Pooled>) -> Option<f64> {
    match spread {
        Spread::Student { standard_error, .. } => {
            Some((standard_error.powi(2) - pooled.map_or(0.0, |pooled| pooled.layout.powi(2))).max(0.0))
        }
        Spread::NoSpread => Some(0.0),
        Spread::OneObservation => None,
    }
}

/// Summarises runs. All variation counts as variation between boots if there are several.
fn of_summary(plan: &Plan, summary: &Summary) -> Replicates {
    let variation = summary.standard_deviation.map(|deviation| (deviation / summary.mean).powi(2));
    let boots = plan.replicates() as usize;
    let (n, unit) = if boots > 1 { (boots, Unit::Boots) } else { (summary.n, Unit::Rounds) };
    Replicates::new(variation.map(|variation| variation / n as f64), n, unit)
}

/// Summarises a cost on the relative scale; `None` if its variance cannot be computed.
fn of_cost(plan: &Plan, cost: &Cost) -> Option<Replicates> {
    let variance = variance_of(&cost.per_call, level_at_a_look(plan)).ok()?;
    let relative = variance.map(|variance| variance / cost.per_call.value.powi(2));
    Some(Replicates::new(relative, cost.per_call.n, cost.unit))
}

/// Returns the factor by which the layout term of the time grows in a cost: time / cost, over all
/// `runs`; 1 if no run has both.
fn scale(cost: &Cost, name: &str, runs: &[&RunResult]) -> f64 {
    let (mut time, mut calls) = (0.0, 0.0);
    let counted = runs.iter().filter(|run| run.record.is_counted());
    for work in counted.filter_map(|run| metric_of(run, name)?.work.value()) {
        let busy = if cost.basis == Basis::Busy { work.busy_ns.value() } else { None };
        time += *busy.unwrap_or(&work.elapsed_ns) as f64;
        calls += work.calls as f64;
    }
    if calls > 0.0 { (time / calls / cost.per_call.value).max(1.0) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_term_of_one_boot_counts_once() {
        let effect = bpfassay_stats::Effect {
            log_ratio: 0.01,
            spread: Spread::Student { standard_error: 3e-4, degrees_of_freedom: 13.0 },
            n: 14,
        };
        let layout = 1e-3_f64;
        let with_layout = effect.with_known_variance(layout.powi(2));
        let pooled = Pooled { cells: 1, deviation: 1e-3, degrees_of_freedom: Some(13.0), layout };
        let of_rounds = shown(&with_layout.spread, Some(&pooled)).unwrap();
        assert!((of_rounds.sqrt() - 3e-4).abs() < 1e-12, "{of_rounds}");
        let point = Replicates::new(Some(of_rounds), 14, Unit::Rounds).point(Clock::Instructions, 0.01, layout);
        assert!((point.variance + point.layout - 1.09e-6).abs() < 1e-15, "{point:?}");
        assert_eq!(shown(&effect.spread, None), Some(3e-4_f64.powi(2)));
        assert_eq!(shown(&Spread::OneObservation, None), None);
    }
}

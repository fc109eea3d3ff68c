// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intervals of overheads and costs. They use the variance pooled over all cells of the matrix if
//! there are few observations, and include the layout term if there is one boot.

use std::collections::BTreeMap;

use bpfassay_stats::{
    Effect, Spread,
    difference::{difference_of, variance_of},
    moderated::{Prior, variance_of_observation},
};
use bpfassay_study::{Clock, MetricName};

use super::{
    context::DeriveContext,
    levels::{LEVEL, design, layout},
};
use bpfassay_results::{CellResult, Cost, Overhead, Pooled, PooledCost, Unit};

/// Effects with this many degrees of freedom, or more, use their own variance alone.
const ENOUGH: f64 = 10.0;

/// Returns the variance of a single observation of `effect` and the degrees of freedom, if these
/// are few.
pub(crate) fn of_few(effect: &Effect) -> Option<(f64, f64)> {
    variance_of_observation(effect).filter(|(_, freedom)| *freedom < ENOUGH)
}

/// Returns `effect` with two sources of variance added, and what was added. The first is the
/// variance `prior` of other rows, with their number, if the effect has few observations. The
/// second is the `layout` term, a standard deviation. Returns `None` if neither applies.
pub(crate) fn with_others(effect: Effect, prior: Option<(Prior, usize)>, layout: f64) -> Option<(Effect, Pooled)> {
    let (own, freedom) = variance_of_observation(&effect)?;
    let prior = prior.filter(|_| of_few(&effect).is_some());
    let (cells, variance, freedom) = match prior {
        Some((prior, cells)) => (cells, prior.variance, prior.degrees_of_freedom),
        None if layout > 0.0 => (1, own, freedom),
        None => return None,
    };
    let moderated = prior.map_or(effect, |(prior, _)| prior.effect(effect));
    let degrees_of_freedom = freedom.is_finite().then_some(freedom);
    let pooled = Pooled { cells, deviation: variance.sqrt(), degrees_of_freedom, layout };
    Some((moderated.with_known_variance(layout.powi(2)), pooled))
}

/// A figure with a pooled variance: an overhead, or a cost as a share of the baseline's
/// instructions per call.
enum Pooling<'a> {
    Overhead(&'a mut Overhead),
    Cost { cost: &'a mut Cost, share: Effect, baseline: f64 },
}

impl Pooling<'_> {
    /// Creates the pooled form of a cost; `None` without a baseline.
    fn of_cost(cost: &mut Cost) -> Option<Pooling<'_>> {
        let baseline = cost.baseline.filter(|baseline| *baseline > 0.0)?;
        let spread = match variance_of(&cost.per_call, LEVEL).ok()? {
            None => Spread::OneObservation,
            Some(0.0) => Spread::NoSpread,
            Some(variance) => Spread::Student {
                standard_error: variance.sqrt() / baseline,
                degrees_of_freedom: cost.per_call.n as f64 - 1.0,
            },
        };
        let share = Effect { log_ratio: cost.per_call.value / baseline, spread, n: cost.per_call.n };
        Some(Pooling::Cost { cost, share, baseline })
    }

    fn effect(&self) -> &Effect {
        match self {
            Self::Overhead(overhead) => &overhead.effect,
            Self::Cost { share, .. } => share,
        }
    }

    fn unit(&self) -> Unit {
        match self {
            Self::Overhead(overhead) => overhead.unit,
            Self::Cost { cost, .. } => cost.unit,
        }
    }

    /// Sets the interval of `effect`. Figures that leave the range stay unchanged.
    fn set(self, context: &DeriveContext<'_>, effect: Effect, pooled: Pooled) {
        match self {
            Self::Overhead(overhead) => {
                if let (Ok(estimate), Ok(detectable)) = (effect.estimate(LEVEL), context.detectable(&effect)) {
                    *overhead = Overhead { estimate, effect, detectable, pooled: Some(pooled), ..*overhead };
                }
            }
            Self::Cost { cost, baseline, .. } => {
                let per_call = difference_of(&effect, baseline, LEVEL).ok();
                cost.pooled = per_call.map(|per_call| PooledCost { per_call, with: pooled });
            }
        }
    }
}

struct PoolMember<'a> {
    figure: Pooling<'a>,
    /// The declared layout term of the metric.
    layout: f64,
    /// Whether the variance is pooled. Every cell shows the control of its baseline, which counts
    /// once.
    counts: bool,
}

/// Pools the variances of overheads. Overheads of the same metric, workload case and file system,
/// whose observations are of the same kind, are one family with their A/A controls; the costs are
/// another family. Sequential sampling stops by unpooled intervals, which are shown unchanged.
pub(super) fn derive(context: &DeriveContext<'_>, cells: &mut [CellResult]) {
    if design(context.plan).is_some() {
        return;
    }
    let mut families = BTreeMap::<(String, String, MetricName, bool, bool), Vec<PoolMember<'_>>>::new();
    for cell in cells {
        let is_baseline = cell.is_baseline();
        for metric in &mut cell.metrics {
            let figures = [
                (metric.overhead.value_mut().map(Pooling::Overhead), true),
                (metric.control.value_mut().map(Pooling::Overhead), is_baseline),
                (metric.cost.value_mut().and_then(Pooling::of_cost), true),
                (metric.control_cost.value_mut().and_then(Pooling::of_cost), is_baseline),
            ];
            for (figure, counts) in figures.into_iter().filter_map(|(figure, counts)| Some((figure?, counts))) {
                if variance_of_observation(figure.effect()).is_none() {
                    continue;
                }
                let kind = (figure.unit() == Unit::Boots, matches!(figure, Pooling::Cost { .. }));
                let family = (cell.case.clone(), cell.file_system.clone(), metric.name, kind.0, kind.1);
                families.entry(family).or_default().push(PoolMember { figure, layout: layout(&metric.name), counts });
            }
        }
    }
    for members in families.into_values() {
        let counted = members.iter().filter(|member| member.counts);
        let variances: Vec<(f64, f64)> = counted.filter_map(|member| of_few(member.figure.effect())).collect();
        let prior = Prior::of(&variances).map(|prior| (prior, variances.len()));
        for PoolMember { figure, layout, .. } in members {
            // Rounds do not show the effect of the layout; boots do, because each has its own
            // layout.
            let is_hidden = figure.unit() == Unit::Rounds && context.plan.study.clock == Clock::Instructions;
            let layout = if is_hidden { layout } else { 0.0 };
            if let Some((effect, pooled)) = with_others(*figure.effect(), prior, layout) {
                figure.set(context, effect, pooled);
            }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intervals of overheads and costs: with few observations by what all cells of the matrix show of
//! their variance, and of one boot with the layout term.

use std::collections::BTreeMap;

use bpfassay_stats::{
    Effect, Spread,
    difference::{difference_of, variance_of},
    moderated::{Prior, variance_of_observation},
};
use bpfassay_study::{Clock, MetricName};

use super::{
    context::Context,
    levels::{LEVEL, design, layout},
};
use bpfassay_results::{CellResult, Cost, Overhead, Pooled, PooledCost, Unit};

/// From so many degrees of freedom on, an overhead or a ratio of two results has its own variance
/// alone.
const ENOUGH: f64 = 10.0;

/// The variance of a single observation of `effect` and its degrees of freedom, where these are
/// few.
pub(crate) fn of_few(effect: &Effect) -> Option<(f64, f64)> {
    variance_of_observation(effect).filter(|(_, freedom)| *freedom < ENOUGH)
}

/// `effect` with the variance of other rows where that can be pooled (`prior`, from so many rows)
/// and the effect has few observations, and with a `layout` term, a standard deviation; and what it
/// then has in it. `None` where that is nothing.
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

/// What is pooled: overheads, and costs as shares of the baseline's instructions per call.
enum Pooling<'a> {
    Overhead(&'a mut Overhead),
    Cost { cost: &'a mut Cost, share: Effect, baseline: f64 },
}

impl Pooling<'_> {
    /// Of a cost; `None` without a baseline.
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

    /// Gives it an interval of `effect`. Figures that leave the range stay as they are.
    fn set(self, context: &Context<'_>, effect: Effect, pooled: Pooled) {
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

/// One of a family.
struct Member<'a> {
    figure: Pooling<'a>,
    /// The declared layout term of its metric.
    layout: f64,
    /// Whether its variance is one of those that are pooled: every cell shows the control of its
    /// baseline, which counts once.
    counts: bool,
}

/// Overheads of the same metric, workload case and file system, whose observations are of the same
/// kind, are one family, A/A controls among them, and so are their costs. Sequential sampling stops
/// by intervals of their own, which are shown as they are.
pub(super) fn derive(context: &Context<'_>, cells: &mut [CellResult]) {
    if design(context.plan).is_some() {
        return;
    }
    let mut families = BTreeMap::<(String, String, MetricName, bool, bool), Vec<Member<'_>>>::new();
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
                families.entry(family).or_default().push(Member { figure, layout: layout(&metric.name), counts });
            }
        }
    }
    for members in families.into_values() {
        let counted = members.iter().filter(|member| member.counts);
        let variances: Vec<(f64, f64)> = counted.filter_map(|member| of_few(member.figure.effect())).collect();
        let prior = Prior::of(&variances).map(|prior| (prior, variances.len()));
        for Member { figure, layout, .. } in members {
            // Rounds do not show the layout; boots have one each.
            let is_hidden = figure.unit() == Unit::Rounds && context.plan.study.clock == Clock::Instructions;
            let layout = if is_hidden { layout } else { 0.0 };
            if let Some((effect, pooled)) = with_others(*figure.effect(), prior, layout) {
                figure.set(context, effect, pooled);
            }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intervals of overheads with few observations, by what all cells of the matrix show of their variance.

use std::collections::BTreeMap;

use bpfassay_stats::{
    Effect,
    moderated::{Prior, variance_of_observation},
};
use bpfassay_study::{Clock, MetricName};

use super::{
    context::Context,
    levels::{design, layout},
};
use bpfassay_results::{CellResult, Figure, Overhead, Pooled, Unit};

/// From so many degrees of freedom on, an overhead or a ratio of two results has its own variance alone.
const ENOUGH: f64 = 10.0;

/// The variance of a single observation of `effect` and its degrees of freedom, where these are few.
pub(crate) fn of_few(effect: &Effect) -> Option<(f64, f64)> {
    variance_of_observation(effect).filter(|(_, freedom)| *freedom < ENOUGH)
}

/// `effect` with the variance of other rows where that can be pooled (`prior`, from so many rows) and the effect has few observations, and with a `layout`
/// term, a standard deviation; and what it then has in it. `None` where that is nothing.
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

/// One of a family.
struct Member<'a> {
    overhead: &'a mut Overhead,
    /// The declared layout term of its metric.
    layout: f64,
    /// Whether its variance is one of those that are pooled: every cell shows the control of its baseline, which counts once.
    counts: bool,
}

/// Overheads of the same metric, workload case and file system, whose observations are of the same kind, are one family, A/A controls
/// among them. Sequential sampling stops by intervals of their own, which are shown as they are.
pub(super) fn derive(context: &Context<'_>, cells: &mut [CellResult]) {
    if design(context.plan).is_some() {
        return;
    }
    let mut families = BTreeMap::<(String, String, MetricName, bool), Vec<Member<'_>>>::new();
    for cell in cells {
        let is_baseline = cell.is_baseline();
        for metric in &mut cell.metrics {
            for (figure, counts) in [(&mut metric.overhead, true), (&mut metric.control, is_baseline)] {
                let Figure::Value(overhead) = figure else { continue };
                if of_few(&overhead.effect).is_none() {
                    continue;
                }
                let of_boots = overhead.unit == Unit::Boots;
                let family = (cell.case.clone(), cell.file_system.clone(), metric.name, of_boots);
                families.entry(family).or_default().push(Member { overhead, layout: layout(&metric.name), counts });
            }
        }
    }
    for members in families.into_values() {
        let counted = members.iter().filter(|member| member.counts);
        let variances: Vec<(f64, f64)> = counted.filter_map(|member| of_few(&member.overhead.effect)).collect();
        let prior = Prior::of(&variances).map(|prior| (prior, variances.len()));
        for Member { overhead, layout, .. } in members {
            // Rounds do not show the layout; boots have one each.
            let is_hidden = overhead.unit == Unit::Rounds && context.plan.study.clock == Clock::Instructions;
            let layout = if is_hidden { layout } else { 0.0 };
            let Some((effect, pooled)) = with_others(overhead.effect, prior, layout) else { continue };
            // Figures that leave the range stay as they are.
            if let Ok(estimate) = context.levels.estimate(|level| effect.estimate(level)) {
                *overhead = Overhead { estimate, effect, pooled: Some(pooled), ..*overhead };
            }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intervals of ratios from few pairs, with a variance that is pooled over all cells.

use std::{collections::BTreeMap, f64::consts::SQRT_2};

use bpfassay_stats::{Spread, moderated::Prior};
use bpfassay_study::MetricName;

use super::{CellComparison, Claim, Ratio};
use crate::derive::{
    levels::layout,
    pooled::{of_few, with_others},
};
use bpfassay_results::{Figure, Unit};

/// Settles the claim about each ratio.
///
/// Ratios of the same metric, workload case and file system, with pairs of the same kind, form one
/// family, whose variances are pooled. Pairs of one boot each also get the declared layout term:
/// the two boots differ by what is under test and by their layouts, and rounds do not show layouts.
/// Results that are identical to the instruction have the same layout. They belong to no family and
/// stay unchanged.
pub(super) fn settle(cells: &mut [CellComparison], claim: Claim) {
    let mut families = BTreeMap::<(String, String, MetricName, bool), Vec<&mut Ratio>>::new();
    for cell in cells {
        for metric in &mut cell.metrics {
            let Figure::Value(ratio) = &mut metric.ratio else { continue };
            let is_same = ratio.effect.spread == Spread::NoSpread && ratio.effect.log_ratio == 0.0;
            if (ratio.paired || ratio.unit == Unit::Rounds) && !is_same {
                let family = (cell.case.clone(), cell.file_system.clone(), metric.metric, ratio.unit == Unit::Boots);
                families.entry(family).or_default().push(ratio);
            }
        }
    }
    for ((_, _, metric, _), ratios) in families {
        let variances: Vec<(f64, f64)> = ratios.iter().filter_map(|ratio| of_few(&ratio.effect)).collect();
        let prior = Prior::of(&variances).map(|prior| (prior, variances.len()));
        for ratio in ratios {
            // Each of the two results has a layout.
            let layout = if ratio.unit == Unit::Rounds { SQRT_2 * layout(&metric) } else { 0.0 };
            let Some((effect, pooled)) = with_others(ratio.effect, prior, layout) else { continue };
            // Figures that leave the range stay unchanged.
            let Ok(settled) = Ratio::new(effect, ratio.paired, ratio.unit, claim) else { continue };
            *ratio = Ratio { pooled: Some(pooled), ..settled };
        }
    }
}

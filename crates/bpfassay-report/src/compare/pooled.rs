// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ratios of few pairs, by what all cells show of their variance.

use std::{collections::BTreeMap, f64::consts::SQRT_2};

use bpfassay_stats::{Spread, moderated::Prior};
use bpfassay_study::MetricName;

use super::{CellComparison, Claim, Ratio};
use crate::derive::{
    levels::layout,
    pooled::{of_few, with_others},
};
use bpfassay_results::{Figure, Unit};

/// Settles what is claimed of each ratio.
///
/// Ratios of the same metric, workload case and file system, whose pairs are of the same kind, are
/// one family, of which variances are pooled. Pairs of one boot each have the declared layout term
/// besides: the two boots differ in more than what is under test by their layouts only, which
/// rounds do not show. Results that are the same to the instruction have the same layout, belong to
/// no family, and stay as they are.
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
            // Both of the two have a layout.
            let layout = if ratio.unit == Unit::Rounds { SQRT_2 * layout(&metric) } else { 0.0 };
            let Some((effect, pooled)) = with_others(ratio.effect, prior, layout) else { continue };
            // Figures that leave the range stay as they are.
            let Ok(settled) = Ratio::new(effect, ratio.paired, ratio.unit, claim) else { continue };
            *ratio = Ratio { pooled: Some(pooled), ..settled };
        }
    }
}

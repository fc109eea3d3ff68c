// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drift: whether the baseline of interleaved blocks changes with time (a host that warms up, a
//! disk that fills).
//!
//! The Mann-Kendall trend test asks only whether later figures tend to be larger, so neither
//! outliers nor the form of the drift matter. Sources are Mann, "Nonparametric tests against
//! trend", Econometrica 13, 1945, and Kendall, "Rank correlation methods", 1975. p-values are exact
//! for up to 50 figures without ties. Otherwise they come from the normal distribution with
//! correction for ties and continuity. Both equal those of R's `cor.test(method = "kendall")`.
//!
//! The amount of drift is the slope of Theil and Sen (Sen, "Estimates of the regression coefficient
//! based on Kendall's tau", JASA 63, 1968), on the log scale. Drift that is slow compared with a
//! block does not bias paired comparison within blocks. It widens figures over all blocks, and
//! shows that blocks are not replicates of one state. Drift is reported; no figure is corrected for
//! it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{StatsError, interval::normal_cdf};

/// The largest number of figures with exact p-values.
const EXACT: usize = 50;

/// The trend of figures in the order in which they were measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// Number of figures.
    pub n: usize,
    /// Kendall's τ-b of figure and order, −1 (falls always) to 1 (rises always); 0 if all are
    /// equal.
    pub tau: f64,
    /// Two-sided p-value of "no trend".
    pub p: f64,
    /// The smallest possible p-value for this number of figures: with four or fewer, no trend can
    /// be shown at 0.05.
    pub smallest_p: f64,
    /// Change from one figure to the next, as a ratio (1: none), the median over all pairs.
    pub ratio_per_step: f64,
    /// Change from the first to the last figure at that rate, as a ratio.
    pub ratio_overall: f64,
}

impl Drift {
    /// Tests positive figures for a trend, such as bandwidths of the baseline, block after block.
    ///
    /// # Errors
    /// - [`StatsError::NotPositive`] for a figure that is not positive and finite
    /// - [`StatsError::TooFew`] for fewer than two figures
    /// - [`StatsError::Range`], if the trend is not finite
    pub fn of(figures: &[f64]) -> Result<Self, StatsError> {
        if let Some(&value) = figures.iter().find(|value| !(value.is_finite() && **value > 0.0)) {
            return Err(StatsError::NotPositive { value });
        }
        let n = figures.len();
        if n < 2 {
            return Err(StatsError::TooFew { what: "a trend", n, fewest: 2 });
        }
        let (mut score, mut slopes) = (0_i64, Vec::with_capacity(n * (n - 1) / 2));
        let figures_with_logs: Vec<(f64, f64)> = figures.iter().map(|&figure| (figure, figure.ln())).collect();
        for (i, &(earlier, earlier_log)) in figures_with_logs.iter().enumerate() {
            for (step, &(later, later_log)) in figures_with_logs.iter().skip(i + 1).enumerate() {
                score += i64::from(later > earlier) - i64::from(later < earlier);
                slopes.push((later_log - earlier_log) / (step + 1) as f64);
            }
        }
        let slope = median(&mut slopes).ok_or(StatsError::Empty)?;
        let ties = tie_sizes(figures);
        let pairs = (n * (n - 1)) as f64 / 2.0;
        let untied = pairs - ties.iter().map(|&t| t * (t - 1.0) / 2.0).sum::<f64>();
        let tau = if untied > 0.0 { score as f64 / (pairs * untied).sqrt() } else { 0.0 };
        let p = if ties.iter().all(|&size| size == 1.0) && n <= EXACT {
            exact_p(n, score)
        } else {
            normal_p(n as f64, score as f64, &ties)
        };
        let smallest_p = if n <= EXACT { exact_p(n, pairs as i64) } else { 0.0 };
        let ratio_overall = (slope * (n - 1) as f64).exp();
        if !ratio_overall.is_finite() {
            return Err(StatsError::Range);
        }
        Ok(Self { n, tau, p, smallest_p, ratio_per_step: slope.exp(), ratio_overall })
    }
}

/// Returns the median, without sorting all values.
fn median(values: &mut [f64]) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let (_, &mut low, above) = values.select_nth_unstable_by(last / 2, f64::total_cmp);
    let high = above.iter().copied().min_by(f64::total_cmp).unwrap_or(low);
    Some(if last % 2 == 1 { low + (high - low) * 0.5 } else { low })
}

/// Counts how many figures share each value.
fn tie_sizes(figures: &[f64]) -> Vec<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.chunk_by(|a, b| a == b).map(|group| group.len() as f64).collect()
}

/// Returns the two-sided p-value from the distribution of the number of inversions of a random
/// order. That is the distribution of a sum of uniform figures on 0 … i, for i below n (Kendall,
/// 1975, chapter 5).
fn exact_p(n: usize, score: i64) -> f64 {
    let pairs = n * (n - 1) / 2;
    let mut shares = vec![0.0; pairs + 1];
    if let Some(first) = shares.first_mut() {
        *first = 1.0;
    }
    let mut reach = 0;
    for i in 1..n {
        reach += i;
        // A running sum over the last i + 1 shares, from a copy, because the loop overwrites the
        // shares.
        let before = shares.clone();
        let mut sum = 0.0;
        for k in 0..=reach {
            sum += before.get(k).copied().unwrap_or(0.0);
            if k > i {
                sum -= before.get(k - i - 1).copied().unwrap_or(0.0);
            }
            if let Some(share) = shares.get_mut(k) {
                *share = sum / (i + 1) as f64;
            }
        }
    }
    // The distribution is symmetric: the tail beyond |score| has at most (pairs − |score|) / 2
    // inversions.
    let most = pairs.saturating_sub(usize::try_from(score.unsigned_abs()).unwrap_or(usize::MAX)) / 2;
    (2.0 * shares.iter().take(most + 1).sum::<f64>()).min(1.0)
}

fn normal_p(n: f64, score: f64, ties: &[f64]) -> f64 {
    let term = |t: f64| t * (t - 1.0) * (2.0 * t + 5.0);
    let variance = (term(n) - ties.iter().map(|&t| term(t)).sum::<f64>()) / 18.0;
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = (score.abs() - 1.0).max(0.0);
    (2.0 * normal_cdf(-distance / variance.sqrt())).min(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        random::Generator,
        simulation::{Distribution, close, share},
    };

    /// R 4.2.2: `cor.test(seq_along(x), x, method = "kendall", exact = TRUE)`; for the third one,
    /// which has ties, `exact = FALSE, continuity = TRUE`.
    #[test]
    fn tau_and_p_values_agree_with_r() {
        for (figures, tau, p) in [
            (&[2.1, 2.3, 1.9, 2.6, 2.8, 2.5, 3.0, 2.9][..], 0.642_857_142_857_143, 0.031_150_793_650_8),
            (&[4.1, 3.9, 4.0, 3.7, 3.8, 3.5, 3.6, 3.3, 3.4, 3.1, 3.2], -0.818_181_818_181_818, 0.000_132_275_132_275),
            (
                &[5.0, 5.0, 6.0, 4.0, 7.0, 7.0, 8.0, 6.0, 9.0, 9.0, 10.0, 8.0],
                0.677_690_769_405_125,
                0.003_562_447_554_51,
            ),
        ] {
            let drift = Drift::of(figures).unwrap();
            assert!(close(drift.tau, tau, 1e-12) && close(drift.p, p, 1e-9), "{drift:?}");
        }
    }

    #[test]
    fn a_steady_drift_is_measured() {
        let figures: Vec<f64> = (0..10).map(|block| 200.0 * 1.01_f64.powi(block)).collect();
        let drift = Drift::of(&figures).unwrap();
        assert!(close(drift.ratio_per_step, 1.01, 1e-9) && close(drift.ratio_overall, 1.01_f64.powi(9), 1e-9));
        // One order of 10!, and its reverse.
        assert!(close(drift.p, 2.0 / 3_628_800.0, 1e-9));
        assert_eq!((drift.p, drift.tau), (drift.smallest_p, 1.0));
    }

    #[test]
    fn few_figures_cannot_show_a_trend() {
        let drift = Drift::of(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!(close(drift.smallest_p, 2.0 / 24.0, 1e-12));
        assert_eq!(drift.p, drift.smallest_p);
    }

    #[test]
    fn equal_figures_have_no_trend() {
        let drift = Drift::of(&[3.0; 8]).unwrap();
        assert_eq!((drift.tau, drift.p, drift.ratio_overall), (0.0, 1.0, 1.0));
    }

    #[test]
    fn what_is_no_bandwidth_is_refused() {
        assert!(matches!(Drift::of(&[1.0]), Err(StatsError::TooFew { .. })));
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(Drift::of(&[1.0, value]), Err(StatsError::NotPositive { .. })));
        }
    }

    /// 4,000 series of 12 without trend have a standard error of 0.0035. A trend of a third of the
    /// deviation per block is found in most series.
    #[test]
    fn false_alarms_are_as_rare_as_documented() {
        let mut generator = Generator::new(61);
        for shape in Distribution::ALL {
            let mut found = |slope: f64, times: usize| {
                share(times, || {
                    let figures: Vec<f64> = (0..12)
                        .map(|block| (slope * f64::from(block) + 0.01 * shape.draw(&mut generator)).exp())
                        .collect();
                    Drift::of(&figures).unwrap().p < 0.05
                })
            };
            let alarms = found(0.0, 4000);
            assert!((0.03..=0.058).contains(&alarms), "{shape:?}: {alarms}");
            let power = found(0.01 / 3.0 * shape.deviation(), 500);
            assert!(power > 0.75, "{shape:?}: {power}");
        }
    }

    proptest! {
        /// The unit does not matter; reversed figures have the opposite trend with the same
        /// p-value.
        #[test]
        fn trends_reverse(figures in prop::collection::vec(1.0..100.0f64, 2..60), unit in 0.01..100.0f64) {
            let drift = Drift::of(&figures).unwrap();
            let reversed: Vec<f64> = figures.iter().rev().copied().collect();
            let reversed = Drift::of(&reversed).unwrap();
            prop_assert!((drift.tau + reversed.tau).abs() < 1e-12 && (drift.p - reversed.p).abs() < 1e-12);
            prop_assert!((drift.ratio_per_step * reversed.ratio_per_step - 1.0).abs() < 1e-9);
            let squares: Vec<f64> = figures.iter().map(|value| value * value).collect();
            prop_assert_eq!(Drift::of(&squares).unwrap().p, drift.p);
            let scaled: Vec<f64> = figures.iter().map(|value| value * unit).collect();
            prop_assert!((Drift::of(&scaled).unwrap().ratio_overall / drift.ratio_overall - 1.0).abs() < 1e-6);
        }
    }
}

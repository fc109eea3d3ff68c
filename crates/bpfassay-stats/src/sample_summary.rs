// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summary of a set of figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::StatsError;

/// Summary of a set of figures, in their unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Number of figures.
    pub n: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Geometric mean; `None` if a figure is not positive.
    pub geometric_mean: Option<f64>,
    /// Sample standard deviation (divisor n − 1); `None` for one figure.
    pub standard_deviation: Option<f64>,
    /// Smallest figure.
    pub min: f64,
    /// Median; the mean of the middle two for an even number.
    pub median: f64,
    /// Largest figure.
    pub max: f64,
}

impl Summary {
    /// Returns the mean for reports of rates and ratios: the geometric mean, or the arithmetic one
    /// if there is no geometric mean.
    #[must_use]
    pub fn center(&self) -> f64 {
        self.geometric_mean.unwrap_or(self.mean)
    }
}

/// Summarises `figures`.
///
/// The standard deviation is computed in two passes (Chan, Golub and LeVeque, "Algorithms for
/// computing the sample variance", The American Statistician 37(3), 1983).
///
/// # Errors
/// - [`StatsError::Empty`] without figures
/// - [`StatsError::NotFinite`] for a figure that is not finite
/// - [`StatsError::Range`], if the mean or the deviation is not finite
pub fn summarise(figures: &[f64]) -> Result<Summary, StatsError> {
    if let Some(&value) = figures.iter().find(|value| !value.is_finite()) {
        return Err(StatsError::NotFinite { value });
    }
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Err(StatsError::Empty) };
    let n = sorted.len();
    let middle = |index: usize| sorted.get(index).copied().unwrap_or(max);
    let median = if n % 2 == 1 { middle(n / 2) } else { f64::midpoint(middle(n / 2 - 1), middle(n / 2)) };
    let (mean, standard_deviation) = mean_and_deviation(&sorted);
    let geometric_mean =
        (min > 0.0).then(|| (sorted.iter().map(|value| value.ln()).sum::<f64>() / n as f64).exp().clamp(min, max));
    if !mean.is_finite() || standard_deviation.is_some_and(|deviation| !deviation.is_finite()) {
        return Err(StatsError::Range);
    }
    Ok(Summary { n, mean, geometric_mean, standard_deviation, min, median, max })
}

/// Returns mean and sample standard deviation of at least one figure.
pub(crate) fn mean_and_deviation(figures: &[f64]) -> (f64, Option<f64>) {
    let n = figures.len() as f64;
    let rough = figures.iter().sum::<f64>() / n;
    // Corrects the rounding of the sum.
    let rest: f64 = figures.iter().map(|value| value - rough).sum();
    let mean = rough + rest / n;
    if figures.len() < 2 {
        return (mean, None);
    }
    let squares: f64 = figures.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, Some((squares / (n - 1.0)).sqrt()))
}

/// Returns the quantile at `p` of sorted figures, interpolated linearly (Hyndman and Fan, 1996,
/// type 7); `None` without figures.
pub(crate) fn sorted_quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = p.clamp(0.0, 1.0) * last as f64;
    let index = (position.floor() as usize).min(last);
    let (&low, &high) = (sorted.get(index)?, sorted.get((index + 1).min(last))?);
    Some(low + (high - low) * (position - index as f64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// NIST Statistical Reference Datasets, univariate, "NumAcc3": 1000000.2 and 500 pairs
    /// (1000000.1, 1000000.3); certified mean 1000000.2, standard deviation 0.1.
    #[test]
    fn certified_values_of_numacc3() {
        let mut figures = vec![1_000_000.2];
        for _ in 0..500 {
            figures.extend([1_000_000.1, 1_000_000.3]);
        }
        let summary = summarise(&figures).unwrap();
        assert!((summary.mean - 1_000_000.2).abs() < 1e-8);
        assert!((summary.standard_deviation.unwrap() - 0.1).abs() < 1e-9);
    }

    /// SciPy 1.17.1: `scipy.stats.gmean([1, 2, 4, 8])` = 2.82842712474619.
    #[test]
    fn an_even_number_of_figures() {
        let summary = summarise(&[8.0, 1.0, 4.0, 2.0]).unwrap();
        assert!((summary.geometric_mean.unwrap() - 2.828_427_124_746_190_3).abs() < 1e-12);
        assert_eq!((summary.n, summary.min, summary.median, summary.max), (4, 1.0, 3.0, 8.0));
    }

    #[test]
    fn one_figure_has_no_deviation() {
        let summary = summarise(&[3.0]).unwrap();
        assert_eq!(summary.standard_deviation, None);
        assert_eq!((summary.mean, summary.median), (3.0, 3.0));
    }

    #[test]
    fn what_is_no_figure_is_refused() {
        assert_eq!(summarise(&[]), Err(StatsError::Empty));
        assert!(matches!(summarise(&[1.0, f64::NAN]), Err(StatsError::NotFinite { .. })));
        assert_eq!(summarise(&[f64::MAX, f64::MAX]), Err(StatsError::Range));
        assert_eq!(summarise(&[0.0, 1.0]).unwrap().geometric_mean, None);
    }

    proptest! {
        #[test]
        fn means_and_median_lie_within_the_range(figures in prop::collection::vec(1e-6..1e9f64, 1..50)) {
            let summary = summarise(&figures).unwrap();
            let slack = summary.max * 1e-12;
            for value in [summary.mean, summary.median, summary.geometric_mean.unwrap()] {
                prop_assert!(value >= summary.min - slack && value <= summary.max + slack);
            }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mean of paired differences: a cost in the unit of its measurement.
//!
//! The estimator is the arithmetic mean of the pairs' differences. The interval is Student's t
//! (Student, "The probable error of a mean", Biometrika 6(1), 1908, whose example is in the tests).
//!
//! Pairs are assumed to be independent of each other, and their differences about normal.

use crate::{
    Effect, Estimate, Spread, StatsError,
    interval::{Bounds, Interval, check_level, t_quantile},
};

/// Estimates the mean of `differences`, each an independent observation.
///
/// # Errors
/// [`StatsError`], if there are no differences, or one is not finite.
pub fn mean_difference(differences: &[f64], level: f64) -> Result<Estimate, StatsError> {
    difference_of(&Effect::paired(differences)?, 1.0, level)
}

/// Estimates a mean difference that is known as a `share` of `whole`, with the error of `share`.
/// The log ratio of `share` holds the mean.
///
/// # Errors
/// [`StatsError::Level`]; [`StatsError::Range`] for figures beyond floating-point numbers.
pub fn difference_of(share: &Effect, whole: f64, level: f64) -> Result<Estimate, StatsError> {
    check_level(level)?;
    let value = share.log_ratio * whole;
    let bounds = match share.spread {
        Spread::OneObservation => Bounds::OneObservation,
        Spread::NoSpread => Bounds::NoSpread,
        Spread::Student { standard_error, degrees_of_freedom } => {
            let half = t_quantile(level, degrees_of_freedom)? * standard_error * whole;
            Bounds::Interval(Interval { lower: value - half, upper: value + half, level })
        }
    };
    let fits = bounds.interval().is_none_or(|interval| interval.lower.is_finite() && interval.upper.is_finite());
    if value.is_finite() && fits { Ok(Estimate { value, bounds, n: share.n }) } else { Err(StatsError::Range) }
}

/// Recovers the squared standard error from the interval of [`mean_difference`] at `level`; `None`
/// for one observation.
///
/// # Errors
/// [`StatsError::Level`], if `level` is not between 0 and 1.
pub fn variance_of(estimate: &Estimate, level: f64) -> Result<Option<f64>, StatsError> {
    match estimate.bounds {
        Bounds::Interval(Interval { lower, upper, .. }) => {
            let half = (upper - lower) / 2.0;
            Ok(Some((half / t_quantile(level, estimate.n as f64 - 1.0)?).powi(2)))
        }
        Bounds::NoSpread => Ok(Some(0.0)),
        Bounds::OneObservation | Bounds::NoDegreesOfFreedom => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Student's example, R's data set `sleep`: `t.test(extra ~ group, paired = TRUE)` gives the
    /// mean -1.58 and the interval
    /// [-2.4598858, -0.7001142].
    #[test]
    fn students_own_example() {
        let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let differences: Vec<f64> = first.iter().zip(second).map(|(a, b)| a - b).collect();
        let estimate = mean_difference(&differences, 0.95).unwrap();
        let interval = estimate.bounds.interval().unwrap();
        assert!((estimate.value + 1.58).abs() < 1e-12, "{estimate:?}");
        assert!((interval.lower + 2.459_885_8).abs() < 1e-6, "{interval:?}");
        assert!((interval.upper + 0.700_114_2).abs() < 1e-6, "{interval:?}");
    }

    /// The variance of 1, 2, 3 and 6 is 14/3, and the variance of their mean is 7/6.
    #[test]
    fn an_interval_shows_its_variance() {
        for level in [0.8, 0.95] {
            let estimate = mean_difference(&[1.0, 2.0, 3.0, 6.0], level).unwrap();
            assert!((variance_of(&estimate, level).unwrap().unwrap() - 7.0 / 6.0).abs() < 1e-9);
        }
        assert_eq!(variance_of(&mean_difference(&[1.0; 3], 0.95).unwrap(), 0.95), Ok(Some(0.0)));
        assert_eq!(variance_of(&mean_difference(&[1.0], 0.95).unwrap(), 0.95), Ok(None));
    }

    #[test]
    fn a_share_of_a_whole_is_the_same_in_its_unit() {
        let differences = [500.0, 503.0, 499.0];
        let own = mean_difference(&differences, 0.95).unwrap();
        let share = Effect::paired(&differences.map(|difference| difference / 20_000.0)).unwrap();
        let of_share = difference_of(&share, 20_000.0, 0.95).unwrap();
        let (own_bounds, bounds) = (own.bounds.interval().unwrap(), of_share.bounds.interval().unwrap());
        assert!((own.value - of_share.value).abs() < 1e-9 && own.n == of_share.n);
        assert!((own_bounds.lower - bounds.lower).abs() < 1e-9 && (own_bounds.upper - bounds.upper).abs() < 1e-9);
        // The interval includes an additional error of 0.1 % of the whole, which is 20.
        let wider = difference_of(&share.with_known_variance(1e-6), 20_000.0, 0.95).unwrap();
        let half = wider.bounds.interval().unwrap().upper - wider.value;
        assert!(wider.value == of_share.value && (39.0..41.0).contains(&half), "{wider:?}");
        assert!(matches!(difference_of(&share, f64::INFINITY, 0.95), Err(StatsError::Range)));
    }

    #[test]
    fn without_spread_or_with_one_observation_there_is_no_interval() {
        assert_eq!(mean_difference(&[5.0], 0.95).unwrap().bounds, Bounds::OneObservation);
        assert_eq!(mean_difference(&[5.0, 5.0], 0.95).unwrap().bounds, Bounds::NoSpread);
        assert!(matches!(mean_difference(&[], 0.95), Err(StatsError::Empty)));
        assert!(matches!(mean_difference(&[f64::NAN], 0.95), Err(StatsError::NotFinite { .. })));
    }

    proptest! {
        #[test]
        fn an_offset_moves_the_estimate_and_keeps_the_width(values in prop::collection::vec(-1e6..1e6f64, 2..20), offset in -1e6..1e6f64) {
            let moved: Vec<f64> = values.iter().map(|value| value + offset).collect();
            let (a, b) = (mean_difference(&values, 0.95).unwrap(), mean_difference(&moved, 0.95).unwrap());
            prop_assert!((a.value + offset - b.value).abs() < 1e-6);
            if let (Some(a), Some(b)) = (a.bounds.interval(), b.bounds.interval()) {
                prop_assert!(((a.upper - a.lower) - (b.upper - b.lower)).abs() < 1e-4);
            }
        }
    }
}

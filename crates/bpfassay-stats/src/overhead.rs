//! Relative overhead: bandwidth without the tool / bandwidth with it (above 1: slower).
//!
//! Estimator: the ratio of geometric means over pairs, which is the exponential of the mean of the pairs' log ratios;
//! interval: Student's t on the log scale, transformed back. Ratios are compared on the log scale because it treats
//! twice as fast and half as fast alike (Fleming and Wallace, "How not to lie with statistics: the correct way to
//! summarize benchmark results", CACM 29(3), 1986); a paired t interval of logarithms is the classical interval for a
//! ratio under multiplicative errors (Bland and Altman, "Transformations, means and confidence intervals", BMJ 312,
//! 1996).
//!
//! Coverage of nominal 95 % intervals, simulated (test `coverage_is_nominal_for_few_pairs`; the table is that of
//! [`crate::bootstrap`]): 0.95 for log-normal ratios, 0.96 with heavy tails (Student's t with 3 degrees of freedom) at
//! 5, 8 and 20 pairs. It is **not** nominal for strongly skewed ratios (exponential: delays only ever add): 0.88 at 5,
//! 0.89 at 8, 0.92 at 20 pairs, as no known interval for so few pairs is.
//!
//! Assumed: pairs are independent of each other and their log ratios about normal. Two runs of one pair may depend on
//! each other as they like: that is what pairing is for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Effect, StatsError, interval::Bounds};

/// An estimate of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Its confidence interval, or why there is none.
    pub bounds: Bounds,
    /// Number of independent observations.
    pub n: usize,
}

/// The relative overhead from `pairs` of (baseline, with the tool), both bandwidths in the same unit.
///
/// # Errors
/// [`StatsError`], when there is no pair or a figure is not a positive finite number.
pub fn relative_overhead(pairs: &[(f64, f64)], level: f64) -> Result<Estimate, StatsError> {
    let mut logs = Vec::with_capacity(pairs.len());
    for &(baseline, with) in pairs {
        for value in [baseline, with] {
            if !(value.is_finite() && value > 0.0) {
                return Err(StatsError::NotPositive { value });
            }
        }
        logs.push(baseline.ln() - with.ln());
    }
    ratio_of_logs(&logs, level)
}

/// The same from log ratios, each an independent observation.
///
/// # Errors
/// [`StatsError`]
pub fn ratio_of_logs(logs: &[f64], level: f64) -> Result<Estimate, StatsError> {
    Effect::paired(logs)?.estimate(level)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        random::Generator,
        simulation::{Shape, share},
    };

    const BASELINE: [f64; 8] = [182.1, 177.4, 190.3, 185.0, 179.9, 188.2, 184.4, 181.7];
    const WITH: [f64; 8] = [171.9, 170.2, 176.8, 178.3, 168.4, 180.6, 172.0, 175.1];

    fn pairs(n: usize) -> Vec<(f64, f64)> {
        BASELINE.into_iter().zip(WITH).take(n).collect()
    }

    /// SciPy 1.17.1: `r = scipy.stats.ttest_rel(numpy.log(a[:n]), numpy.log(b[:n]))`, then
    /// `numpy.exp(numpy.mean(numpy.log(a[:n]) - numpy.log(b[:n])))` and `numpy.exp(r.confidence_interval(0.95))`.
    #[test]
    fn figures_agree_with_scipy() {
        for (n, value, lower, upper) in [
            (8, 1.054_355_712_175_596_6, 1.040_788_844_346_753, 1.068_099_426_541_262),
            (2, 1.050_785_483_520_236, 0.947_955_966_263_598, 1.164_769_431_990_499),
        ] {
            let estimate = relative_overhead(&pairs(n), 0.95).unwrap();
            let interval = estimate.bounds.interval().unwrap();
            assert_eq!(estimate.n, n);
            for (ours, scipy) in [(estimate.value, value), (interval.lower, lower), (interval.upper, upper)] {
                assert!((ours / scipy - 1.0).abs() < 1e-9, "n = {n}: {ours} against {scipy}");
            }
        }
    }

    #[test]
    fn one_pair_has_no_interval() {
        let estimate = relative_overhead(&pairs(1), 0.95).unwrap();
        assert_eq!(estimate.bounds, Bounds::OneObservation);
        assert!((estimate.value - 182.1 / 171.9).abs() < 1e-12);
    }

    #[test]
    fn equal_ratios_have_no_spread() {
        let estimate = relative_overhead(&[(2.0, 1.0), (2.0, 1.0)], 0.95).unwrap();
        assert_eq!((estimate.value, estimate.bounds), (2.0, Bounds::NoSpread));
    }

    #[test]
    fn what_is_no_bandwidth_is_refused() {
        assert_eq!(relative_overhead(&[], 0.95), Err(StatsError::Empty));
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(relative_overhead(&[(1.0, value)], 0.95), Err(StatsError::NotPositive { .. })));
            assert!(matches!(relative_overhead(&[(value, 1.0)], 0.95), Err(StatsError::NotPositive { .. })));
        }
    }

    /// 4,000 samples: standard error 0.0034.
    #[test]
    fn coverage_is_nominal_for_few_pairs() {
        for (shape, range) in [(Shape::Normal, 0.938..0.962), (Shape::HeavyTailed, 0.938..0.972)] {
            for n in [5, 8, 20] {
                let mut generator = Generator::new(n as u64);
                let covered = share(4000, || {
                    let pairs: Vec<_> = shape
                        .sample(&mut generator, n, 0.02)
                        .iter()
                        .map(|log| (182.0 * (0.05 + log).exp(), 182.0))
                        .collect();
                    let interval = relative_overhead(&pairs, 0.95).unwrap().bounds.interval().unwrap();
                    interval.lower <= 0.05_f64.exp() && 0.05_f64.exp() <= interval.upper
                });
                assert!(range.contains(&covered), "{shape:?} n = {n}: {covered}");
            }
        }
    }

    proptest! {
        /// The order of pairs does not matter; equal pairs, however many, have no spread.
        #[test]
        fn order_does_not_matter(mut pairs in prop::collection::vec((1e-3..1e6f64, 1e-3..1e6f64), 2..20), times in 2..50usize) {
            let before = relative_overhead(&pairs, 0.95).unwrap();
            pairs.reverse();
            prop_assert!((relative_overhead(&pairs, 0.95).unwrap().value / before.value - 1.0).abs() < 1e-9);
            let equal = relative_overhead(&vec![pairs[0]; times], 0.95).unwrap();
            prop_assert_eq!(equal.bounds, Bounds::NoSpread);
            let point = equal.bounds.interval_or_point(equal.value, 0.95).unwrap();
            prop_assert_eq!((point.lower, point.upper), (equal.value, equal.value));
        }

        /// Swapping the roles inverts estimate and bounds; the unit of bandwidth does not matter.
        #[test]
        fn the_estimate_is_a_ratio(pairs in prop::collection::vec((1e-3..1e6f64, 1e-3..1e6f64), 2..20), unit in 1e-3..1e3f64) {
            let estimate = relative_overhead(&pairs, 0.95).unwrap();
            let swapped: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
            let inverse = relative_overhead(&swapped, 0.95).unwrap();
            prop_assert!((estimate.value * inverse.value - 1.0).abs() < 1e-9);
            let scaled: Vec<_> = pairs.iter().map(|&(a, b)| (a * unit, b * unit)).collect();
            prop_assert!((relative_overhead(&scaled, 0.95).unwrap().value / estimate.value - 1.0).abs() < 1e-9);
            if let (Some(interval), Some(other)) = (estimate.bounds.interval(), inverse.bounds.interval()) {
                prop_assert!(interval.lower <= estimate.value && estimate.value <= interval.upper);
                prop_assert!((interval.lower * other.upper - 1.0).abs() < 1e-6);
            }
        }

        /// A higher level gives a wider interval.
        #[test]
        fn levels_are_nested(pairs in prop::collection::vec((1.0..1e3f64, 1.0..1e3f64), 2..20)) {
            let narrow = relative_overhead(&pairs, 0.9).unwrap().bounds.interval();
            let wide = relative_overhead(&pairs, 0.99).unwrap().bounds.interval();
            if let (Some(narrow), Some(wide)) = (narrow, wide) {
                prop_assert!(wide.lower < narrow.lower && narrow.upper < wide.upper);
            }
        }
    }
}
